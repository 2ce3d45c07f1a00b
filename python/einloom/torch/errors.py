"""What cannot be taken, and where it stands in the user's program."""

from __future__ import annotations

import os
import re

import torch

from ..errors import EinloomError


class NotConvertible(EinloomError, TypeError):
    """An operation of a PyTorch program that has no cascade.

    `operation` is PyTorch's name of it, `reason` says what is missing, `place` is the user's `file:line` and source.
    """

    def __init__(self, operation: str, reason: str, place: str | None = None) -> None:
        self.operation, self.reason, self.place = operation, reason, place
        super().__init__(f"{operation}: {reason}" + (f"\n  {place}" if place else ""))


def user_function(trace: str | None) -> str | None:
    """The innermost function of the user's own that made a value, if it has a name that says something."""
    frames = re.findall(r'File "(.+?)", line \d+, in (\w+)', trace or "")
    own = [f for file, f in frames if not _torch(file)]
    return own[-1] if own and own[-1] not in ("forward", "__call__") else None


def _torch(file: str) -> bool:
    return f"{os.sep}site-packages{os.sep}torch{os.sep}" in file or "<frozen" in file


def user_line(trace: str | None) -> tuple[str, int, str] | None:
    """File, line and source of the innermost frame in the user's own code."""
    frames = re.findall(r'File "(.+?)", line (\d+)(?:, in [^\n]*)?\n?([^\n]*)', trace or "")
    own = [f for f in frames if not _torch(f[0])] or frames
    return (own[-1][0], int(own[-1][1]), own[-1][2].strip()) if own else None


def place_of(node: torch.fx.Node) -> str | None:
    """Where the user's own code made a node, as `file:line: source`."""
    found = user_line(node.meta.get("stack_trace"))
    return found and f"{found[0]}:{found[1]}: {found[2]}".rstrip(": ")
