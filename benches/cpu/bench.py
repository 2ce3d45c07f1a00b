#!/usr/bin/env python3
"""Speeds of Einloom on the processor beside PyTorch's, in one run, with the floor beside each row.

    python3 benches/cpu/bench.py --einloom target/release/einloom --out bench.json

Rounds of ours and PyTorch's take turns; medians. Rows go to the JSON file as they are measured; see README.md.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tables
from cases import GROUPS

REST = 0.3
HERE = Path(__file__).resolve().parent


def floor(folder, threads):
    """The measured rates; rustc compiles the program that measures them."""
    program = Path(folder) / "floor"
    subprocess.run(["rustc", "-O", "--edition", "2024", "-o", program, HERE / "floor.rs"], check=True)
    return json.loads(subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout)


def timed_ours(command, limit):
    """One process: seconds of its runs and the most memory it held, in bytes."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)
        begun, peak = time.monotonic(), 0
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if time.monotonic() - begun > limit:
                process.kill()
                process.wait()
                raise TimeoutError(f"more than {limit:.0f} s")
            time.sleep(0.02)
        out.seek(0)
        printed = out.read()
    if process.returncode:
        raise RuntimeError(printed.strip().splitlines()[0] if printed.strip() else f"status {process.returncode}")
    line = next(text for text in printed.splitlines() if text.startswith("{"))
    return json.loads(line)["seconds"], peak


def peak_bytes(pid):
    """The most memory that a running process has held so far. (What `wait4` tells includes its parent's.)"""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def timed_whole(command, limit):
    """Seconds that the process itself takes, from its start to its end."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=limit)
    return [time.perf_counter() - begun], 0


def timed_theirs(call, repeat, limit):
    seconds, begun = [], time.perf_counter()
    while len(seconds) < repeat and (not seconds or time.perf_counter() - begun < limit):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(case, row, options, folder):
    program = Path(folder) / f"{case.program}_{case.dtype}.ein"
    program.write_text(case.text())
    command = [options.einloom, "bench", program, "--json", "--quiet", "--threads", options.threads, "--repeat", options.repeat]
    command += [word for rank, size in case.sizes.items() for word in ("--size", f"{rank}={size}")]
    command = [str(word) for word in command]
    timed = timed_ours
    if case.group == "start":
        command, timed = [options.einloom, "run", *command[2:command.index("--repeat")], *command[command.index("--size"):]], timed_whole
    call, ours, theirs, peak = None, [], [], 0
    if case.rival and options.rivals:
        import torch

        import rivals

        torch.set_num_threads(options.threads)
        kind, *arguments = case.rival
        call = getattr(rivals, kind)(*arguments)
    for _ in range(options.rounds):
        if call:
            with torch.inference_mode():
                call()
                call()
                theirs += timed_theirs(call, options.repeat, options.limit)
            # Its threads go on looking for work for a while.
            time.sleep(REST)
        try:
            seconds, held = timed(command, options.limit)
            ours, peak = ours + seconds, max(peak, held)
        except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError, StopIteration, KeyError, json.JSONDecodeError) as error:
            row["error"] = str(error)
            break
    if ours:
        row["ours"] = statistics.median(ours)
        if peak:
            row["extra_mib"] = (peak - case.bytes) / 2**20
    if theirs:
        row["theirs"] = statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom", help="the program to measure")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one round if not told otherwise")
    parser.add_argument("--out", type=Path, help="where results go as they are measured")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which groups, in order (default: %(default)s)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of either side (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs per round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="turns of ours and theirs (default: 3, or 1 of --quick)")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one turn (default: %(default)s)")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false", help="measure ours only")
    parser.add_argument("--tables", type=Path, metavar="JSON", help="print the tables of an earlier run and stop")
    options = parser.parse_args()
    if options.tables:
        return print(tables.text(json.loads(options.tables.read_text())))
    options.rounds = options.rounds or (1 if options.quick else 3)
    data = {"facts": {}, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        data["facts"] = floor(folder, options.threads)
        if options.rivals:
            import torch

            data["facts"]["torch"] = torch.__version__
        for group in options.groups.split(","):
            for case in (c for c in GROUPS[group](options.quick) if options.only in c.name):
                keys = ("group", "name", "dtype", "sizes", "flops", "bytes", "at_least", "positions")
                row = {key: getattr(case, key) for key in keys}
                data["rows"].append(row)
                measure(case, row, options, folder)
                print(f"{group} {case.name}: {row.get('ours')} {row.get('theirs')} {row.get('error', '')}", file=sys.stderr, flush=True)
                if options.out:
                    options.out.write_text(json.dumps(data, indent=1))
        data["facts"]["fma_gflops_at_the_end"] = floor(folder, options.threads)["fma_gflops"]
    if options.out:
        options.out.write_text(json.dumps(data, indent=1))
    print(tables.text(data))


if __name__ == "__main__":
    main()
