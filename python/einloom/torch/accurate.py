"""Has PyTorch compute as accurately as it says on a processor."""

from __future__ import annotations

import threading

import torch

_FUNCTIONS = (
    "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "expm1", "lgamma", "log", "log10", "log1p", "log2",
    "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_lock = threading.Lock()
_done = False


def settle() -> None:
    """Calls every elementwise function once, on one element.

    PyTorch has oneMKL compute them, which looks for each function's kernel when it is first called. Where several threads
    call it for the first time together, one may get a kernel of half the digits: relative errors of 1e-4 in f32, once
    (pytorch/pytorch, issue 188792). A tensor of one element is computed by one thread.
    """
    global _done
    if _done:
        return
    with _lock, torch.no_grad():
        for kind in (torch.float32, torch.float64):
            one = torch.full((1,), 0.5, dtype=kind, device="cpu")
            for name in _FUNCTIONS:
                getattr(torch, name)(one)
        _done = True
