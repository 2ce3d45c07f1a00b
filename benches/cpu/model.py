#!/usr/bin/env python3
"""The model's predictions beside what kernels take on this processor, whose bandwidths and rates are measured first.

    python3 benches/cpu/model.py --einloom target/release/einloom

Prints a Markdown table for docs/model-against-measured.md, and how many rows are within 20 %. Nothing else should run meanwhile. No operator
has a constant of its own: the machine is what `einloom machines --detect` says.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from cases import GROUPS


def sizes(case):
    return ",".join(f"{rank}={size}" for rank, size in case.sizes.items())


def both(options, case, machine, folder):
    """Predicted and measured seconds."""
    program = folder / "program.ein"
    program.write_text(case.text())
    command = [options.einloom, "bench", program, "-s", sizes(case), "--machine", machine, "--repeat", options.repeat, "--json", "--quiet"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case.name}: {(done.stdout + done.stderr)[:400]}")
    found = json.loads(done.stdout)
    return found["predicted_seconds"], found["median_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--groups", default="matmul,attention,variants,rows,recurrences")
    parser.add_argument("--quick", action="store_true", help="smaller sizes only")
    parser.add_argument("--repeat", type=int, default=9, help="timed runs (default: %(default)s)")
    parser.add_argument("--machine", type=Path, help="a description of this machine; measured now if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        machine = options.machine or folder / "host.toml"
        if options.machine is None:
            machine.write_text(subprocess.run([options.einloom, "machines", "--detect"], check=True, capture_output=True, text=True).stdout)
        told = [line for line in machine.read_text().splitlines() if line.startswith(("description", "bandwidth", "f32", "bf16"))]
        print("\n".join(told), end="\n\n")
        print("| group | case | predicted ms | measured ms | off by |\n|---|---|---|---|---|")
        off = []
        for group in options.groups.split(","):
            for case in GROUPS[group](options.quick):
                predicted, measured = both(options, case, machine, folder)
                off.append(predicted / measured - 1)
                print(f"| {group} | {case.name} | {predicted * 1e3:.3g} | {measured * 1e3:.3g} | {off[-1]:+.0%} |", flush=True)
    within = sum(abs(x) <= 0.2 for x in off)
    print(f"\n{within} of {len(off)} within 20 %, the worst {max(off, key=abs):+.0%}.")


if __name__ == "__main__":
    main()
