"""Integers of 64 bits, which kernels read as 32-bit ones: never another number."""

from __future__ import annotations

import torch

from ..errors import OutOfRange


def assert_within(tensor: torch.Tensor, name: str) -> None:
    """Has the device stop, as PyTorch's own indexing does, where an element is no 32-bit integer. Nothing waits for it: what
    comes after on the device fails, so that no wrong result can be read."""
    tensor = tensor.detach()
    torch._assert_async((tensor == tensor.to(torch.int32)).all(), f"{name} has an element that is no 32-bit integer")


def check_within(tensor: torch.Tensor, limit: int, name: str) -> None:
    """Refuses integers of a larger magnitude, with which a program's arithmetic could leave 32 bits. On a GPU as above."""
    said = f"with which the program's integers might not fit into 32 bits: it takes magnitudes up to {limit}"
    if tensor.is_cuda:
        within = ((tensor >= -limit) & (tensor <= limit)).all()
        torch._assert_async(within, f"{name} has an element {said}")
    elif tensor.numel():
        for extreme in tensor.aminmax():
            if abs(int(extreme)) > limit:
                raise OutOfRange(f"{name} has an element {int(extreme)}, {said}")
