#!/usr/bin/env python3
"""Speeds of Einloom's kernels beside others' on one NVIDIA GPU, in one run, with the floor beside each row.

    python3 benches/gpu/bench.py --einloom target/release/einloom --out bench.json

Both sides are timed alike: events around the call, 256 MiB overwritten before each so that the L2 cache holds none of its
tensors, the median. Rows go to the JSON file as they are measured; the tables are printed last. See README.md.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import tables
from cases import GROUPS, HERE, USUAL


class Run:
    """What has been measured so far, on disk too."""

    def __init__(self, options):
        self.options = options
        self.start = time.monotonic()
        self.data = {"facts": {}, "rows": []}

    def left(self):
        return self.options.budget - (time.monotonic() - self.start)

    def save(self):
        part = self.options.out.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1))
        part.replace(self.options.out)

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", file=sys.stderr, flush=True)


def suite(cases, folder):
    """The suite file of some cases; their names are their places."""
    entries = []
    for k, case in enumerate(cases):
        entry = {"name": str(k), "file": str(case.program), "sizes": case.sizes, "params": case.params}
        entries.append(entry | ({"arch": case.arch} if case.arch else {}))
    path = Path(folder) / f"suite{time.monotonic_ns()}.json"
    path.write_text(json.dumps(entries))
    return path


def command(options, path, *more):
    program = [options.einloom, "bench", "--suite", path, "--backend", "cuda", "--json", "--repeat", options.repeat]
    return [str(word) for word in [*program, *more]]


def measure_ours(run, cases, rows, folder):
    """One process for all cases; lines are read as they come, and what is not there in time is missing."""
    process = subprocess.Popen(command(run.options, suite(cases, folder)), stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(max(run.left(), 1), process.kill)
    watchdog.start()
    for line in process.stdout:
        result = json.loads(line)
        if "name" not in result:
            run.say(f"einloom: {line.strip()}")
            continue
        row = rows[int(result["name"])]
        if "error" in result:
            row["error"] = result["error"]
        else:
            row["ours_rounds_ms"].append(1e3 * result["median_seconds"])
            row["ours_ms"] = median(row["ours_rounds_ms"])
            row["host_rounds_us"].append(1e6 * result["host_seconds_per_launch"])
            row["host_us"] = median(row["host_rounds_us"])
            row["path"] = result["path"]
        run.save()
    process.wait()
    watchdog.cancel()


def measure_rivals(run, cases, rows):
    import torch
    from triton.testing import do_bench

    import peers

    for case, row in zip(cases, rows):
        if run.left() < 0:
            return
        kind, *arguments = case.make
        more = {"flex": run.options.flex} if kind == "variant" else {}
        try:
            calls = getattr(peers, kind)(*arguments, **more)
        except Exception as error:  # a rival that cannot do a case is a gap in the table, not the end
            row["rivals_error"] = repr(error)[:200]
            continue
        for name, call in calls.items():
            try:
                call()
                torch.cuda.synchronize()
                rounds = row["rivals_rounds_ms"].setdefault(name, [])
                rounds.append(do_bench(call, warmup=10, rep=60, return_mode="median"))
                row["rivals"][name] = median(rounds)
            except Exception as error:
                row["rivals_error"] = f"{name}: {error!r}"[:200]
        del calls
        torch.cuda.empty_cache()
        run.save()


def rates(run, folder):
    """The measured rates of products and copies, from which the floors follow."""
    facts = run.data["facts"]
    program, nvcc = Path(folder) / "mma_rate", shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    options = ["-gencode=arch=compute_90a,code=sm_90a", "-O3", "-o", str(program), str(HERE / "mma_rate.cu")]
    try:
        subprocess.run([nvcc, *options], check=True, capture_output=True, text=True, timeout=60)
        facts["mma_tflops"] = float(subprocess.run([program], check=True, capture_output=True, timeout=30).stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        run.say(f"no rate of products: {error} {getattr(error, 'stderr', '')}"[:300])
    if run.options.rivals:
        import torch
        from triton.testing import do_bench

        facts |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        x = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
        y = torch.empty_like(x)
        facts["copy_tbs"] = 2 * x.numel() / do_bench(lambda: y.copy_(x), warmup=10, rep=60, return_mode="median") / 1e9
    run.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom", help="the program to measure")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where results go as they are measured")
    parser.add_argument("--groups", default=USUAL, help="which groups, in order (default: %(default)s)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--repeat", type=int, default=30, help="timed runs of ours (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times both sides are measured in turn (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which nothing more is started")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false", help="measure ours only")
    parser.add_argument("--flex", action="store_true", help="FlexAttention for variants; it compiles for long")
    parser.add_argument("--tables", type=Path, metavar="JSON", help="print the tables of an earlier run and stop")
    options = parser.parse_args()
    if options.tables:
        return print(tables.text(json.loads(options.tables.read_text())))
    run = Run(options)
    groups = {}
    for group in options.groups.split(","):
        groups[group] = [c for c in GROUPS[group]() if options.only in c.name]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("EINLOOM_CACHE_DIR", f"{folder}/cache")
        every = [case for cases in groups.values() for case in cases]
        compiling = subprocess.Popen(command(options, suite(every, folder), "--compile-only"))
        rates(run, folder)
        compiling.wait()
        run.say("compiled, rates measured")
        for group, cases in groups.items():
            rows = [
                {"group": group, "name": c.name, "flops": c.flops, "bytes": c.bytes, "rival": c.rival}
                | {"at_least": c.at_least, "copied": c.copied, "rivals": {}}
                | {"ours_rounds_ms": [], "rivals_rounds_ms": {}, "host_rounds_us": []}
                for c in cases
            ]
            run.data["rows"] += rows
            for number in range(1, options.rounds + 1):
                if number > 1 and run.left() < 0:
                    break
                measure_ours(run, cases, rows, folder)
                run.say(f"{group}: ours measured, round {number}")
                if options.rivals:
                    measure_rivals(run, cases, rows)
                    run.say(f"{group}: rivals measured, round {number}")
            run.save()
    print(tables.text(run.data))


if __name__ == "__main__":
    main()
