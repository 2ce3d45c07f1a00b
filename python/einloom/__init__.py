"""Naive tensor maths in, a fast kernel out, and every step in between can be looked at.

>>> import einloom
>>> softmax = einloom.compile('''
... cascade softmax
... input  X[m,n]: f32
... output Y: f32
... P[m,n] = exp(X[m,n] - max(n) X[m,n])
... Y[m,n] = P[m,n] / (sum(n) P[m,n])
... ''')
>>> softmax.passes["N"].written, softmax.passes["N"].derived
(3, 2)
"""

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from . import _native
from . import errors as errors
from . import library as library
from . import tuning as tuning
from ._cascade import Cascade as Cascade
from ._cascade import compile as compile
from .errors import (
    CascadeError as CascadeError,
    DeviceError as DeviceError,
    DtypeError as DtypeError,
    EinloomError as EinloomError,
    GradientError as GradientError,
    LayoutError as LayoutError,
    MachineError as MachineError,
    MissingInput as MissingInput,
    OutOfMemory as OutOfMemory,
    OutOfRange as OutOfRange,
    PlanError as PlanError,
    ShapeError as ShapeError,
    UnknownInput as UnknownInput,
    UsageError as UsageError,
)

__version__ = _native.__version__

# CUDA's compiler may be among the installed packages; it is looked for when it is first needed.
_native.set_places(_sys.prefix, [p for p in _sys.path if p])


def __dir__() -> list[str]:
    return sorted({*globals(), "from_torch", "torch"})


def __getattr__(name: str) -> _Any:
    """`from_torch` and `torch` need PyTorch, which is imported when they are first named."""
    if name not in ("from_torch", "torch"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(".torch", __name__)
    return module if name == "torch" else module.from_torch
