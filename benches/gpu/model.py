#!/usr/bin/env python3
"""The model's predictions beside what bench.py measured: no GPU is needed.

    python3 benches/gpu/model.py --einloom target/release/einloom bench.json

Prints a Markdown table for docs/model-against-measured.md: every measured row, its predicted time, what the model says
binds it, and how far off that is; then how many rows are within 20 %. `--order` adds how well the model sorts each group.
"""
import argparse
import json
import subprocess
from pathlib import Path
from statistics import median

from cases import GROUPS


def machine(name, arch, folder):
    """The machine a case is planned for: without the units that code for an older architecture cannot use."""
    return ["--machine", name] if arch is None else ["--machine", str(older(name, folder))]


def older(name, folder):
    """The machine's description without its asynchronous matrix unit, beside the results."""
    root = Path(__file__).resolve().parents[2]
    text = (root / "machines" / f"{name}_sxm.toml").read_text()
    head, *units = text.split("[[matrix]]")
    kept = [unit for unit in units if "asynchronous = true" not in unit]
    path = folder / f"{name}_sm_80.toml"
    path.write_text("[[matrix]]".join([head, *kept]))
    return path


def predicted(options, case, folder):
    sizes = ",".join(f"{rank}={size}" for rank, size in case.sizes.items())
    command = [options.einloom, "plan", case.program, "--size", sizes, "--json", *machine(options.machine, case.arch, folder)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    plan = json.loads(done.stdout)
    if "errors" in plan:
        raise SystemExit(f"{case.name}: {plan['errors'][0]['message']}")
    longest = max(plan["kernels"], key=lambda k: k["seconds"])
    tiles = {**longest["group"], **longest["stream"]}
    return sum(k["seconds"] - k["busy"].get("launch", 0) for k in plan["kernels"]), longest["bound_by"], tiles


def order(rows):
    """Of all pairs whose measured times differ by more than 5 %, the part that the model puts in the same order."""
    pairs = [(a, b) for k, a in enumerate(rows) for b in rows[k + 1 :] if abs(a[0] / b[0] - 1) > 0.05]
    right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    return f"{right} of {len(pairs)} pairs in order"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what bench.py wrote")
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--order", action="store_true", help="also tell how well times are sorted")
    options = parser.parse_args()
    measured = {(r["group"], r["name"]): r["ours_ms"] for r in json.loads(options.results.read_text())["rows"] if "ours_ms" in r}
    print("| group | case | tiles | bound by | predicted µs | measured µs | off by |\n|---|---|---|---|---|---|---|")
    errors, groups = [], {}
    for group in GROUPS:
        for case in GROUPS[group]():
            ms = measured.get((group, case.name))
            if ms is None:
                continue
            seconds, bound_by, tiles = predicted(options, case, options.results.resolve().parent)
            error = seconds / (ms / 1e3) - 1
            errors.append(error)
            groups.setdefault(group, []).append((ms, seconds))
            shown = " ".join(f"{index}:{tile}" for index, tile in tiles.items() if tile > 1)
            print(f"| {group} | {case.name} | {shown} | {bound_by} | {1e6 * seconds:.0f} | {1e3 * ms:.0f} | {error:+.0%} |")
    if errors:
        within = sum(abs(e) <= 0.2 for e in errors)
        middle, worst = median(abs(e) for e in errors), max(errors, key=abs)
        print(f"\n{within} of {len(errors)} within 20 %, half of them within {middle:.0%}, the worst {worst:+.0%}.")
    if options.order:
        for group, rows in groups.items():
            print(f"{group}: {order(rows)}")


if __name__ == "__main__":
    main()
