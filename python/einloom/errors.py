"""What can go wrong, as exceptions that name the program's own tensors, ranks and lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

__all__ = [
    "CascadeError",
    "DeviceError",
    "DtypeError",
    "EinloomError",
    "Finding",
    "GradientError",
    "LayoutError",
    "MachineError",
    "MissingInput",
    "OutOfMemory",
    "OutOfRange",
    "PlanError",
    "ShapeError",
    "UnknownInput",
    "UsageError",
]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, where, and what to do instead."""

    severity: str
    """`error` or `warning`."""
    code: str
    """A stable name in kebab case, such as `unknown-tensor`."""
    message: str
    line: Optional[int] = None
    """From 1; `None` where it is about no place of the text."""
    column: Optional[int] = None
    """From 1, in characters."""
    end_column: Optional[int] = None
    source_line: Optional[str] = None
    """The whole line."""
    hints: tuple[str, ...] = ()

    def render(self, origin: str) -> str:
        """The finding with the line of the program that it is about."""
        out = [self.message]
        if self.line is not None and self.column is not None and self.source_line is not None:
            number = f"{self.line}"
            marks = "^" * max(1, (self.end_column or self.column + 1) - self.column)
            out.append(f"  --> {origin}:{self.line}:{self.column}")
            out.append(f"  {number} | {self.source_line}")
            out.append(f"  {' ' * len(number)} | {' ' * (self.column - 1)}{marks}")
        out += [f"  hint: {hint}" for hint in self.hints]
        return "\n".join(out)


class EinloomError(Exception):
    """Whatever Einloom refuses. Its text shows every finding with the line of the program."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = (), origin: str = "<cascade>") -> None:
        super().__init__(message)
        self.findings = findings
        self.origin = origin

    def __str__(self) -> str:
        if not self.findings:
            return str(self.args[0]) if self.args else ""
        return "\n".join(finding.render(self.origin) for finding in self.findings)

    @property
    def code(self) -> Optional[str]:
        """The first finding's stable name."""
        return self.findings[0].code if self.findings else None

    @property
    def line(self) -> Optional[int]:
        """The line of the program that the first finding is about, from 1."""
        return self.findings[0].line if self.findings else None


class CascadeError(EinloomError, SyntaxError):
    """The text is not a program: all that is wrong with it at once. Tracebacks point into the text."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = (), origin: str = "<cascade>") -> None:
        EinloomError.__init__(self, message, findings, origin)
        self.msg = message
        for finding in findings:
            if finding.line is not None and finding.severity == "error":
                self.filename, self.lineno, self.offset = origin, finding.line, finding.column
                self.text = finding.source_line
                self.end_lineno, self.end_offset = finding.line, finding.end_column
                break


class ShapeError(EinloomError, ValueError):
    """Arrays whose shapes contradict each other or the program."""


class DtypeError(EinloomError, TypeError):
    """An array of a number type that the program does not take."""


class LayoutError(EinloomError, ValueError):
    """An array whose place in memory cannot be used: it runs backwards, must not be written, overlaps another."""


class DeviceError(EinloomError, RuntimeError):
    """Arrays on several devices, or a device that this machine cannot use."""


class MissingInput(EinloomError, TypeError):
    """An input, size or parameter without a value."""


class UnknownInput(EinloomError, TypeError):
    """An argument that the program does not have, or has already."""


class OutOfRange(EinloomError, IndexError):
    """A gather named an element that does not exist. On a GPU a later call tells."""


class OutOfMemory(EinloomError, MemoryError):
    """The machine has too little memory."""


class PlanError(EinloomError, RuntimeError):
    """There is no way to run this program at these sizes."""


class MachineError(EinloomError, ValueError):
    """A machine that is not known, or a description with mistakes."""


class GradientError(EinloomError, RuntimeError):
    """A gradient is asked for where there is none."""


class UsageError(EinloomError, ValueError):
    """An option that does not exist."""


_Plain = tuple[str, str, str, Optional[tuple[int, int, int, str]], list[str]]


def _from_findings(kind: str, origin: str, findings: list[_Plain]) -> EinloomError:
    """What the extension module raises."""
    found = []
    for severity, code, message, place, hints in findings:
        line, column, end, text = place if place is not None else (None, None, None, None)
        found.append(Finding(severity, code, message, line, column, end, text, tuple(hints)))
    known = globals().get(kind, EinloomError)
    message = next((f.message for f in found if f.severity == "error"), "unknown error")
    error = known(message, tuple(found), origin)
    assert isinstance(error, EinloomError)
    return error
