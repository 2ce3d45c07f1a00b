"""What a warm call costs on the host beyond the launch itself: microseconds, as a table.

    python benches/python/overhead.py [--calls 20000]

For each case: the host's time per call of the compiled program, in a loop that never waits for the device; on a GPU also
that of launching an empty kernel with PyTorch's cheapest operator (`x.add_(0)` on one element), and of the framework's own
way to do the same work. The program is small, so that the device keeps up and its queue never fills.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from typing import Any, Callable

import einloom


def per_call(function: Callable[[], Any], calls: int, wait: Callable[[], None]) -> float:
    """Microseconds of the host per call: the median of rounds, each of which ends with a wait that is not counted."""
    for _ in range(100):
        function()
    wait()
    rounds = []
    inner = 200
    gc.disable()
    for _ in range(max(5, calls // inner)):
        start = time.perf_counter_ns()
        for _ in range(inner):
            function()
        rounds.append((time.perf_counter_ns() - start) / inner / 1e3)
        wait()
    gc.enable()
    return statistics.median(rounds)


def cases(torch: Any, device: str) -> list[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """A name, the call, and the framework's own call."""
    f = torch.nn.functional
    x = torch.randn(4, 64, device=device)
    y = torch.empty_like(x)
    q, k, v = (torch.randn(1, 2, 64, 64, device=device).bfloat16() for _ in range(3))
    o = torch.empty_like(q)
    softmax, attention = einloom.library.softmax, einloom.library.attention
    return [
        ("softmax 4x64 f32", lambda: softmax(x), lambda: torch.softmax(x, -1)),
        ("  with out=", lambda: softmax(x, out=y), lambda: torch.softmax(x, -1, out=y)),
        ("attention 1x2x64x64 bf16", lambda: attention(q, k, v), lambda: f.scaled_dot_product_attention(q, k, v)),
        ("  with out=", lambda: attention(q, k, v, out=o), lambda: f.scaled_dot_product_attention(q, k, v)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20000)
    arguments = parser.parse_args()
    import torch

    devices = [("cpu", lambda: None)]
    if torch.cuda.is_available():
        devices.append(("cuda", torch.cuda.synchronize))
    print(f"einloom {einloom.__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    with torch.no_grad():
        for device, wait in devices:
            name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
            print(f"\n{device}: {name}; microseconds of the host per call")
            launch = 0.0
            if device == "cuda":
                one = torch.zeros(1, device=device)
                launch = per_call(lambda: one.add_(0), arguments.calls, wait)
                print(f"  {'x.add_(0), one element: the launch':40} {launch:8.2f}")
            print(f"  {'':40} {'einloom':>8} {'beyond':>8} {'torch':>8}")
            for case, ours, theirs in cases(torch, device):
                mine, other = (per_call(g, arguments.calls, wait) for g in (ours, theirs))
                beyond = f"{mine - launch:8.2f}" if device == "cuda" else f"{'-':>8}"
                print(f"  {case:40} {mine:8.2f} {beyond} {other:8.2f}")


if __name__ == "__main__":
    main()
