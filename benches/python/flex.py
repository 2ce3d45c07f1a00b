"""FlexAttention's examples: time and error of Einloom beside FlexAttention and SDPA, in one table.

    python benches/python/flex.py                       on the GPU: bf16, 4 × 16 heads × 4096 positions × 64
    python benches/python/flex.py --device cpu --size 1,4,1024,64

Times are medians over interleaved rounds; on a GPU 256 MiB are written before each run, so that the L2 cache holds none
of the tensors. Errors are the largest difference from attention in f64, relative to the largest element of its row.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Any, Callable

import einloom
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from variants import Variant, textbook, variants


class Clock:
    """Times calls on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=device) if device.type == "cuda" else None

    def once(self, f: Callable[[], Any]) -> float:
        """Seconds of one call."""
        if self.flush is None:
            start = time.perf_counter()
            f()
            return time.perf_counter() - start
        self.flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        f()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def together(self, calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
        """Medians; one call of each in turn, after three to warm up."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for k in range(rounds + 3):
            for name, f in calls.items():
                seconds = self.once(f)
                if k >= 3:
                    times[name].append(seconds)
        return {name: statistics.median(t) for name, t in times.items()}


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference relative to the largest element of the row."""
    return ((got.double() - want).abs().amax(-1) / want.abs().amax(-1)).max().item()


def exact(v: Variant, q: torch.Tensor, k: torch.Tensor, value: torch.Tensor, x: Any, scale: float) -> torch.Tensor:
    """The textbook's attention in f64, a head at a time, as all scores at once would not fit."""
    parts = []
    for b in range(q.shape[0]):
        heads = []
        for h in range(q.shape[1]):
            one = {"slope": x["slope"][h : h + 1]} if "slope" in x else {n: t[b : b + 1] for n, t in x.items()}
            part = (t[b : b + 1, h : h + 1].double() for t in (q, k, value))
            heads.append(textbook(v, *part, one, scale))
        parts.append(torch.cat(heads, 1))
    return torch.cat(parts)


def calls_of(v: Variant, q: Any, k: Any, value: Any, x: Any, scale: float, compiled: Any) -> dict[str, Any]:
    """The contenders."""
    b, h, n, _ = q.shape
    cascade = einloom.compile(v.text())
    mask = None
    if v.mask_mod is not None:
        mask = create_block_mask(v.mask_mod(x, n), b if "doc" in x else None, None, n, n, device=q.device)
    score = v.score_mod(x, n) if v.score_mod is not None else None
    calls = {
        "einloom": lambda: cascade(q, k, value, **x),
        "flex": lambda: compiled(q, k, value, score_mod=score, block_mask=mask, scale=scale),
    }
    if v.name in ("full", "causal"):
        causal = v.name == "causal"
        calls["sdpa"] = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, value, is_causal=causal)
    return calls


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--size", default="4,16,4096,64", help="batch,heads,positions,features")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--only", default="", help="names of variants, with commas")
    given = arguments.parse_args()
    device = torch.device(given.device)
    b, h, n, d = (int(s) for s in given.size.split(","))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    scale = 1 / math.sqrt(d)
    torch.manual_seed(0)
    q, k, value = (torch.randn(b, h, n, d, device=device, dtype=dtype) for _ in range(3))
    clock = Clock(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {dtype}, {b} × {h} heads × {n} positions × {d}, PyTorch {torch.__version__}\n")
    print("| variant | einloom ms | flex ms | sdpa ms | flex / einloom | error einloom | error flex |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for v in variants(n):
        if given.only and v.name not in given.only.split(","):
            continue
        x = v.inputs(b, h, n, device)
        torch._dynamo.reset()
        with torch.no_grad():
            row(clock, v, calls_of(v, q, k, value, x, scale, torch.compile(flex_attention)), given.rounds,
                lambda v=v, x=x: exact(v, q, k, value, x, scale))  # fmt: skip


def row(clock: Clock, v: Variant, calls: dict[str, Any], rounds: int, want: Callable[[], torch.Tensor]) -> None:
    """One line of the table. A contender that cannot do a variant says why below it."""
    failed = {}
    errors = {}
    expected = want()
    for name in list(calls):
        try:
            errors[name] = error(calls[name](), expected)
        except Exception as e:
            failed[name] = f"{type(e).__name__}: {str(e).splitlines()[0][:160]}"
            del calls[name]
    del expected
    times = clock.together(calls, rounds)

    def ms(name: str) -> str:
        return f"{times[name] * 1e3:.3f}" if name in times else "–"

    ratio = f"{times['flex'] / times['einloom']:.2f}" if {"flex", "einloom"} <= set(times) else "–"
    off = [f"{errors[name]:.1e}" if name in errors else "–" for name in ("einloom", "flex")]
    print(f"| {v.name} | {ms('einloom')} | {ms('flex')} | {ms('sdpa')} | {ratio} | {off[0]} | {off[1]} |", flush=True)
    for name, reason in failed.items():
        print(f"  {v.name}, {name}: {reason}", flush=True)


if __name__ == "__main__":
    main()
