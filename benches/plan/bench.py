"""How long plans take: processor time and wall time of `einloom plan`, the whole process, least of a few runs.

    python3 benches/plan/bench.py --einloom target/release/einloom
"""

import argparse
import os
import resource
import subprocess
import time

CASES = [
    # program, machine, sizes, target in milliseconds
    ("attention", "h200", "B=4,H=16,M=4096,N=4096,D=128,E=128", 50),
    ("attention", "h200", "B=1,H=16,M=16384,N=16384,D=128,E=128", 50),
    ("attention", "h200", "B=1,H=1,M=1024,N=1024,D=64,E=64", 50),
    ("attention", "h200", "B=1,H=8,M=7,N=9999,D=96,E=72", 50),
    ("attention", "h200", "B=1,H=1,M=1,N=65536,D=128,E=128", 50),
    ("attention_causal", "h200", "B=4,H=16,M=4096,N=4096,D=128,E=128", 50),
    ("attention_gqa", "h200", "B=4,H=32,J=8,M=4,N=65536,D=128,E=128", 50),
    ("transformer_layer", "h200", "B=1,M=1024,C=1024,H=16,D=64,G=4,F=4096", 2000),
    ("transformer_layer", "h200", "B=3,M=333,C=777,H=6,D=60,G=3,F=1001", 2000),
    ("transformer_layer", "rtx-4090", "B=1,M=1024,C=1024,H=16,D=64,G=4,F=4096", 2000),
    ("transformer_layer", "cpu-generic", "B=1,M=1024,C=1024,H=16,D=64,G=4,F=4096", 2000),
    ("transformer_layer", "three-level", "B=1,M=1024,C=1024,H=16,D=64,G=4,F=4096", 2000),
    ("transformer_layer", "two-level", "B=1,M=1024,C=1024,H=16,D=64,G=4,F=4096", 2000),
]


def once(command):
    """Milliseconds of the processor and of the wall."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * cpu, 1e3 * wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    cascades = os.path.join(os.path.dirname(__file__), "..", "..", "cascades")
    print("| program | machine | sizes | processor ms | wall ms | target | |")
    print("|---|---|---|---|---|---|---|")
    for program, machine, sizes, target in CASES:
        command = [args.einloom, "plan", os.path.join(cascades, program + ".ein"), "--machine", machine, "--size", sizes]
        runs = [once(command) for _ in range(args.runs)]
        cpu, wall = (min(r[k] for r in runs) for k in (0, 1))
        met = "met" if wall <= target else "missed"
        print(f"| {program} | {machine} | {sizes} | {cpu:.0f} | {wall:.0f} | {target} | {met} |", flush=True)


if __name__ == "__main__":
    main()
