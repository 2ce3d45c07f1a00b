"""Integers of 64 bits, which kernels read as 32-bit ones."""

from __future__ import annotations

import torch


def assert_within(tensor: torch.Tensor, name: str) -> None:
    """Has the device stop, as PyTorch's own indexing does, where an element is no 32-bit integer. Nothing waits for it: what
    comes after on the device fails, so that no wrong result can be read."""
    tensor = tensor.detach()
    torch._assert_async((tensor == tensor.to(torch.int32)).all(), f"{name} has an element that is no 32-bit integer")
