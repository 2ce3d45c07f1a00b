"""What runs a cascade, and what the planner says of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ..report import Plan
from .convert import Cascade


@lru_cache(maxsize=4096)
def compiled(text: str, origin: str) -> Any:
    """The `einloom.Cascade` of a text."""
    import einloom

    return einloom.compile(text, origin=origin)


class Planner:
    """What the planner and the backend of one device make of cascades. Both raise `EinloomError` where they cannot."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.machine = _machine(device)

    def plan(self, cascade: Cascade) -> Plan:
        """What it is planned as."""
        return _plan(cascade.text, self.machine, tuple(sorted(cascade.sizes.items())))

    def check(self, cascade: Cascade) -> None:
        """Makes the kernels' source, where that can fail after planning."""
        if self.cuda:
            _check(cascade.text, self.machine, tuple(sorted(cascade.sizes.items())))


@lru_cache(maxsize=4096)
def _plan(text: str, machine: str | None, sizes: tuple[tuple[str, int], ...]) -> Plan:
    made: Plan = compiled(text, "<region>").plan(machine=machine, **dict(sizes))
    return made


@lru_cache(maxsize=4096)
def _check(text: str, machine: str | None, sizes: tuple[tuple[str, int], ...]) -> None:
    """What raises is not kept, and asked again."""
    compiled(text, "<region>").source("cuda", machine=machine, **dict(sizes))


def _machine(device: torch.device) -> str | None:
    """The description that plans are made for: the processor at hand, or the nearest GPU that is described."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower() if torch.cuda.is_available() else ""
    return next((known for known in ("h200", "h100", "a100") if known in name), "h200")
