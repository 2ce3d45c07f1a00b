"""The shipped programs, ready to call: `einloom.library.attention(q, k, v)`.

Each is compiled when it is first named. `names()` lists them, `text(name)` shows one.
"""

from __future__ import annotations

from .. import _native
from .._cascade import Cascade
from .._cascade import compile as _compile

_texts: dict[str, str] = dict(_native.programs())


def names() -> list[str]:
    """The names of all shipped programs."""
    return sorted(_texts)


def text(name: str) -> str:
    """The text of a shipped program."""
    try:
        return _texts[name]
    except KeyError:
        raise LookupError(f"there is no shipped program {name!r}; there are {', '.join(names())}") from None


def __getattr__(name: str) -> Cascade:
    if name not in _texts:
        raise AttributeError(f"there is no shipped program {name!r}; there are {', '.join(names())}")
    program = _compile(_texts[name], origin=f"<library/{name}.ein>")
    globals()[name] = program
    return program


def __dir__() -> list[str]:
    return [*names(), "names", "text"]
