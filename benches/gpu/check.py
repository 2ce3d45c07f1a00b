#!/usr/bin/env python3
"""Checks the kernels that bench.py measures, at the sizes it measures, against f32 results.

    python3 benches/gpu/check.py --einloom target/release/einloom [--groups matmul] [--only d128]

The meaning is too slow at these sizes; `einloom verify` compares small ones with it.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import references
from cases import GROUPS, USUAL

# bf16 has 8 bits: results are off by 2e-3 of their size. A wrong tile is off by its own size.
RELATIVE_L2, WORST_OF_ROW = 1e-2, 5e-2


def check(options, case, folder):
    kind, *arguments = case.make
    inputs, expected = getattr(references, kind)(*arguments)
    given, found = Path(folder) / "in.safetensors", Path(folder) / "out.safetensors"
    save_file(inputs, given)
    sizes = ",".join(f"{rank}={size}" for rank, size in case.sizes.items())
    command = [options.einloom, "run", case.program, "--size", sizes, "--backend", "cuda", "--quiet"]
    command += ["--input", given, "--output", found, *(["--arch", case.arch] if case.arch else [])]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        return f"stopped: {done.stderr.strip()[:300]}"
    (result,) = load_file(found, device="cuda").values()
    difference = result.float() - expected
    if not torch.isfinite(difference).all():
        return f"{int((~torch.isfinite(difference)).sum())} elements are not finite"
    relative = (difference.norm() / expected.norm()).item()
    rows = expected.abs().amax(-1, keepdim=True) if expected.dim() > 1 else expected.abs().max()
    worst = (difference.abs() / rows.clamp_min(1e-30)).max().item()
    verdict = "ok" if relative < RELATIVE_L2 and worst < WORST_OF_ROW else "WRONG"
    return f"{verdict}: relative L2 error {relative:.1e}, worst of a row {worst:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--einloom", default="target/release/einloom")
    parser.add_argument("--groups", default=USUAL, help="also: huge (tensors of more than 2³² bytes)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for group in options.groups.split(","):
            for case in (c for c in GROUPS[group]() if options.only in c.name):
                torch.manual_seed(0)
                result = check(options, case, folder)
                torch.cuda.empty_cache()
                wrong += not result.startswith("ok")
                print(f"{group} {case.name}: {result}", flush=True)
    print(f"{wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
