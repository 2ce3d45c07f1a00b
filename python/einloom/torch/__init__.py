"""PyTorch programs as cascades: `from_torch`, `torch.compile(…, backend="einloom")`, and operators with gradients."""

from __future__ import annotations

from .backend import Report as Report
from .backend import einloom as backend
from .backend import reports as reports
from .errors import NotConvertible as NotConvertible
from .gradient import operator_of as operator_of
from .operator import Operator as Operator
from .operator import known as operators
from .program import TorchProgram as TorchProgram
from .program import from_torch as from_torch

__all__ = [
    "NotConvertible",
    "Operator",
    "Report",
    "TorchProgram",
    "backend",
    "from_torch",
    "operator_of",
    "operators",
    "reports",
]
