#!/usr/bin/env python3
"""Is the model's first choice of tile near the best there is? Times every tile of a few kernels on the card.

    python3 benches/gpu/tiles.py --einloom target/release/einloom --out tiles.json

Every candidate is planned with `tiles` given, timed as bench.py does, in one process; candidates that do not fit say so and
are counted. Prints for each kernel the planner's own choice, the best that was found, and how much slower the choice is.
"""
import argparse
import json
import subprocess
import tempfile
from itertools import product
from pathlib import Path

from cases import CASCADES, PROGRAMS


def attention(d, s, causal):
    program = CASCADES / ("attention_causal.ein" if causal else "attention.ein")
    sizes = {"B": 16384 // s, "H": 2048 // d, "M": s, "N": s, "D": d, "E": d}
    tiles = [{"m": m, "n": n} for m, n in product((64, 128, 192, 256), range(48, 257, 16))]
    return f"attention d{d} S{s}{' causal' if causal else ''}", program, sizes, tiles


def matmul(n):
    tiles = [{"m": m, "n": c, "k": k} for m, c, k in product((64, 128, 192, 256), range(64, 257, 32), (32, 64, 128))]
    return f"matmul {n}", PROGRAMS / "matmul_nn.ein", {"M": n, "N": n, "K": n}, tiles


def rows(n):
    tiles = [{"m": m} for m in (1, 2, 4, 8, 16, 32)]
    return f"softmax {n}", PROGRAMS / "softmax.ein", {"M": (1 << 27) // n, "N": n}, tiles


KERNELS = [matmul(4096), attention(64, 4096, False), attention(128, 4096, False), attention(256, 4096, False)]
KERNELS += [attention(128, 4096, True), rows(4096)]


def measure(options, program, sizes, tiles, folder):
    """Seconds by candidate (None for the planner's own), and why the others have none."""
    entries = [{"name": "own", "file": str(program), "sizes": sizes}]
    entries += [{"name": str(k), "file": str(program), "sizes": sizes, "tiles": t} for k, t in enumerate(tiles)]
    path = Path(folder) / "suite.json"
    path.write_text(json.dumps(entries))
    command = [options.einloom, "bench", "--suite", path, "--backend", "cuda", "--json", "--repeat", options.repeat]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    found, failed = {}, {}
    for line in done.stdout.splitlines():
        result = json.loads(line)
        name = result.get("name")
        if name is None:
            raise SystemExit(line)
        key = None if name == "own" else int(name)
        if "error" in result:
            failed[key] = result["error"]
        else:
            found[key] = (result["median_seconds"], result["predicted_seconds"], len(result["path"]["fallbacks"]))
    return found, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--out", type=Path, default=Path("tiles.json"))
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    options = parser.parse_args()
    results = []
    print("| kernel | candidates | ran | the planner's choice µs | best µs | best tiles | choice is slower by |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, program, sizes, tiles in KERNELS:
            if options.only not in name:
                continue
            found, failed = measure(options, program, sizes, tiles, folder)
            timed = {k: v[0] for k, v in found.items() if k is not None}
            results.append({"kernel": name, "own": found.get(None), "failed": len(failed)})
            results[-1]["candidates"] = [{"tiles": tiles[k], "measured": v[0], "predicted": v[1], "fallbacks": v[2]} for k, v in found.items() if k is not None]
            options.out.write_text(json.dumps(results, indent=1))
            if None not in found or not timed:
                print(f"| {name} | {len(tiles)} | {len(timed)} | - | - | {next(iter(failed.values()), '')[:60]} | - |")
                continue
            own, best = found[None][0], min(timed, key=timed.get)
            shown = " ".join(f"{i}:{t}" for i, t in tiles[best].items())
            slower = max(own / timed[best] - 1, 0)
            print(f"| {name} | {len(tiles)} | {len(timed)} | {1e6 * own:.1f} | {1e6 * timed[best]:.1f} | {shown} | {slower:.1%} |", flush=True)


if __name__ == "__main__":
    main()
