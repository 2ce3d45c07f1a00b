"""Kernels made ahead of the first call, beside each other, while inductor works on the rest of a graph."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence, cast

import torch

from .operator import Operator, known

_MOST = 8
"""Threads that make kernels: a model has few that differ."""

_pool: ThreadPoolExecutor | None = None


def make(operator: Operator, inputs: Sequence[Any]) -> None:
    """Begins to make the kernel for inputs like these, which are without data, unless it did before. Where a call brings others after all (PyTorch
    may lay intermediate results out as it likes) it makes its own, as it also does where this fails: so the reason is told by
    whoever needs the kernel. Tuning measures on the first call's own arrays, so nothing is made ahead of it."""
    global _pool
    if not all(_is_plain(t) for t in inputs):
        return
    device = inputs[0].device
    described = [
        (str(t.dtype).partition(".")[2], list(t.shape), list(t.stride()), int(t.storage_offset()) * t.element_size())
        for t in inputs
    ]
    if _pool is None:
        _pool = ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1), thread_name_prefix="einloom-ahead")
    number = device.index or 0 if device.type == "cuda" else None
    if described not in operator.expected:
        operator.expected.append(described)
        prepare = cast(Any, operator.kernel).prepare
        operator.awaited.append(_pool.submit(prepare, described, number))


def _is_plain(tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor.device.type not in ("cpu", "cuda"):
        return False
    return all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride()))


def _forked() -> None:
    """Threads do not come along, nor does what they were making."""
    global _pool
    _pool = None
    for operator in known():
        operator.awaited.clear()


os.register_at_fork(after_in_child=_forked)
