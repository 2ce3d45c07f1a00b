"""What inductor is told of our operators before it meets them.

An operator that inductor does not know becomes a fallback when it first comes, and releases of PyTorch before 2.12 write all
its arguments into a log message that nobody reads. An argument prints with everything that it was computed from, as often
as it is used on the way: the text grows exponentially with the layers of a model. An operator that has its fallback already
is not written out.
"""

from __future__ import annotations

import sys
from typing import Any, Iterable


def announce(operators: Iterable[Any]) -> bool:
    """Registers the fallbacks of these overloads, once inductor is there; whether it is. Importing it takes seconds, so that
    is left to those who use it."""
    lowering = sys.modules.get("torch._inductor.lowering")
    if lowering is None or not hasattr(lowering, "make_fallback"):
        return False
    for operator in operators:
        if operator not in lowering.lowerings:
            lowering.make_fallback(operator, warn=False)
    return True
