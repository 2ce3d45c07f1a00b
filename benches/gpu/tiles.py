#!/usr/bin/env python3
"""Is the model's first choice of tile near the best there is? Times every tile of a few kernels on the card.

    python3 benches/gpu/tiles.py --einloom target/release/einloom --out tiles.json     # less than 4 minutes on an H200
    python3 benches/gpu/tiles.py --einloom target/release/einloom --dry                # only what would be timed; no GPU

For each kernel all candidates are timed once in one process, as bench.py times. Then the planner's own choice and the fastest
candidates are timed again in turn, several rounds, because the clock of a card at its power limit moves between two
measurements: what is compared are medians over rounds. Left out before: candidates that the planner refuses, and those that it
times at more than `--beyond` times its own choice: some cut the program into more kernels, or leave the matrix unit.
Candidates that do not compile or run are counted as failed. No kernel takes more than twice its part of the time that is left.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import median

from cases import CASCADES, PROGRAMS


def attention(d, s, causal):
    program = CASCADES / ("attention_causal.ein" if causal else "attention.ein")
    sizes = {"B": 16384 // s, "H": 2048 // d, "M": s, "N": s, "D": d, "E": d}
    tiles = [{"m": m, "n": n} for m, n in product((64, 128, 192, 256), range(48, 257, 16))]
    return f"attention d{d} S{s}{' causal' if causal else ''}", program, sizes, tiles


def matmul(n):
    tiles = [{"m": m, "n": c, "k": k} for m, c, k in product((64, 128, 192, 256), range(64, 257, 32), (32, 64, 128))]
    return f"matmul {n}", PROGRAMS / "matmul_nn.ein", {"M": n, "N": n, "K": n}, tiles


def lanes(n):
    """f32, which no matrix unit takes."""
    sides = (64, 128, 256, 512)
    tiles = [{"m": m, "n": c, "k": k} for m, c, k in product(sides, sides, (16, 32, 64, 128)) if m * c <= 32768]
    return f"f32 matmul {n}", CASCADES / "matmul.ein", {"M": n, "N": n, "K": n}, tiles


def rows(n):
    tiles = [{"m": m} for m in (1, 2, 4, 8, 16, 32)]
    return f"softmax {n}", PROGRAMS / "softmax.ein", {"M": (1 << 27) // n, "N": n}, tiles


KERNELS = [rows(4096), lanes(4096), matmul(4096)]
KERNELS += [attention(d, 4096, causal) for d, causal in ((64, False), (128, False), (256, False), (128, True))]
BATCH = 16
HEADER = "| kernel | candidates | timed | the planner's choice | µs | best | µs | choice is slower by |\n|---|---|---|---|---|---|---|---|"


def shown(tiles):
    return " ".join(f"{index}:{tile}" for index, tile in tiles.items())


class Kernel:
    """One kernel, its candidates by number (None is the planner's own choice) and their times."""

    def __init__(self, options, name, program, sizes, tiles):
        self.options, self.name, self.program, self.sizes, self.tiles = options, name, program, sizes, tiles
        with ThreadPoolExecutor() as pool:
            plans = list(pool.map(self.plan, [{}, *tiles]))
        self.predicted = {None if k == 0 else k - 1: plan[0] for k, plan in enumerate(plans)}
        own, self.own_tiles = plans[0]
        if own is None:
            raise SystemExit(f"{name}: {self.own_tiles}")
        # The planner's own tile is not timed twice.
        same = [k for k, t in enumerate(tiles) if all(self.own_tiles.get(index) == tile for index, tile in t.items())]
        beyond = options.beyond * own
        self.kept = [k for k in range(len(tiles)) if k not in same and (self.predicted[k] or beyond + 1) <= beyond]
        self.left_out = len(tiles) - len(same) - len(self.kept)
        self.scanned, self.failed, self.rounds = {}, {}, {}

    def plan(self, tiles):
        """The predicted seconds and the tiles of the longest kernel; no seconds and why if it is refused."""
        text = lambda values: ",".join(f"{name}={value}" for name, value in values.items())
        command = [self.options.einloom, "plan", self.program, "--machine", self.options.machine, "--json"]
        command += ["--size", text(self.sizes), *(["--tile", text(tiles)] if tiles else [])]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        plan = json.loads(done.stdout)
        if "errors" in plan:
            return None, plan["errors"][0]["message"]
        longest = max(plan["kernels"], key=lambda k: k["seconds"])
        return sum(k["seconds"] for k in plan["kernels"]), {i: t for i, t in {**longest["group"], **longest["stream"]}.items() if t > 1}

    def measure(self, keys, repeat, folder, until):
        """Times these candidates one after the other in one process; gives seconds by candidate, in order."""
        entry = {"file": str(self.program), "sizes": self.sizes}
        entries = [entry | {"name": "own" if k is None else str(k)} | ({} if k is None else {"tiles": self.tiles[k]}) for k in keys]
        path = Path(folder) / "suite.json"
        path.write_text(json.dumps(entries))
        command = [self.options.einloom, "bench", "--suite", path, "--backend", "cuda", "--json", "--repeat", repeat]
        limit = max(until - time.monotonic(), 1)
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit)
            lines, told = done.stdout, done.stderr
        except subprocess.TimeoutExpired as stopped:
            # What is there was measured; a line that was not finished was not.
            lines, told = (stopped.stdout or b"").decode().rpartition("\n")[0], "stopped: no time is left"
        times = []
        for line in lines.splitlines():
            result = json.loads(line)
            if "name" not in result:
                raise SystemExit(f"{self.name}: {line}")
            key = None if result["name"] == "own" else int(result["name"])
            if "error" in result:
                self.failed[key] = result["error"]
            else:
                times.append((key, result["median_seconds"], len(result["path"]["fallbacks"])))
        if len(times) < len(keys) and told.strip() and not self.failed:
            print(f"{self.name}: {told.strip()[:300]}", flush=True)
        return times

    def run(self, folder, until):
        """The candidates that the model likes best come first, in case that time is over."""
        likely = [None, *sorted(self.kept, key=lambda k: self.predicted[k])]
        # A quarter of the time is for the rounds.
        scan = until - (until - time.monotonic()) / 4
        # A process compiles all that it gets before it times any of it.
        for first in range(0, len(likely), BATCH):
            if time.monotonic() < scan:
                for key, seconds, fallbacks in self.measure(likely[first : first + BATCH], self.options.repeat, folder, scan):
                    self.scanned[key] = (seconds, fallbacks)
        best = sorted((k for k in self.scanned if k is not None), key=lambda k: self.scanned[k][0])[: self.options.finalists]
        if None in self.scanned:
            for key, seconds, _ in self.measure([None, *best] * self.options.rounds, self.options.repeat, folder, until):
                self.rounds.setdefault(key, []).append(seconds)

    def again(self):
        """Medians over the rounds."""
        return {key: median(times) for key, times in self.rounds.items()}

    def row(self):
        own, again = shown(self.own_tiles), self.again()
        start = f"| {self.name} | {len(self.tiles)} | {len(self.scanned)} | {own} |"
        if None not in again:
            return f"{start} - | - | - | {self.failed.get(None, 'not timed')[:80]} |"
        best = min(again, key=again.get)
        tiles = own if best is None else shown(self.tiles[best])
        return f"{start} {1e6 * again[None]:.1f} | {tiles} | {1e6 * again[best]:.1f} | {again[None] / again[best] - 1:.1%} |"

    def data(self):
        name = lambda k: self.own_tiles if k is None else self.tiles[k]
        timed = [
            {"tiles": name(k), "own": k is None, "seconds": s, "predicted_seconds": self.predicted[k], "fallbacks": f, "rounds": self.rounds.get(k, [])}
            for k, (s, f) in self.scanned.items()
        ]
        failed = [{"tiles": name(k), "error": error} for k, error in self.failed.items()]
        return {"kernel": self.name, "candidates": len(self.tiles), "left_out": self.left_out, "timed": timed, "failed": failed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--machine", default="h200", help="whose model chooses (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("tiles.json"))
    parser.add_argument("--repeat", type=int, default=9, help="timed runs each time (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times the fastest are timed again in turn (default: %(default)s)")
    parser.add_argument("--finalists", type=int, default=4, help="how many are timed again beside the planner's (default: %(default)s)")
    parser.add_argument("--beyond", type=float, default=1.5, help="candidates predicted slower by this factor are left out (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=220, help="seconds after which nothing more is started")
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    parser.add_argument("--dry", action="store_true", help="plan the candidates and say which would be timed")
    options = parser.parse_args()
    options.start = time.monotonic()
    results, late = [], []
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("EINLOOM_CACHE_DIR", f"{folder}/cache")
        kernels = [case for case in KERNELS if options.only in case[0]]
        for left, case in zip(range(len(kernels), 0, -1), kernels):
            if time.monotonic() - options.start > options.budget:
                late.append(case[0])
                continue
            kernel = Kernel(options, *case)
            if options.dry:
                print(f"| {kernel.name} | {len(kernel.tiles)} | {1 + len(kernel.kept)} to time | {shown(kernel.own_tiles)} | - | - | - | - |", flush=True)
                continue
            now = time.monotonic()
            end = options.start + options.budget
            kernel.run(folder, min(end, now + 2 * (end - now) / left))
            results.append(kernel.data())
            options.out.write_text(json.dumps(results, indent=1))
            print(kernel.row(), flush=True)
            for key, error in kernel.failed.items():
                print(f"  {'own' if key is None else shown(kernel.tiles[key])} failed: {error.splitlines()[0][:150]}", flush=True)
    if late:
        print(f"no time was left for {', '.join(late)}")


if __name__ == "__main__":
    main()
