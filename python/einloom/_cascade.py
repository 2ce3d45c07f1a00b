"""`einloom.compile` and the object that it gives."""

from __future__ import annotations

import inspect
import json
import sys
from functools import cached_property
from keyword import iskeyword
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Mapping, Optional, Sequence, Union

from . import _native, html, report
from .errors import UsageError

_call = _native.Cascade.__call__
"""Named once: to look it up at each call costs as much as the rest of what Python does there."""

Target = Literal["cuda", "pseudo"]


class Cascade(_native.Cascade):
    """A program that can be called with arrays, and asked what became of it.

    A call takes the inputs by position in the order of their declarations, or by name; parameters and sizes of ranks by
    name; and `out=`, an array, a sequence or a dictionary of arrays for the results. Arrays are anything with DLPack, all
    on one device, and are used where they are. Sizes come from the arrays, and so do floating-point types. The result is
    an array of the first input's framework, or a tuple of such.
    """

    @cached_property
    def _derivation(self) -> report.Derivation:
        return report.Derivation.from_json(json.loads(self.derivation_json()))

    @property
    def passes(self) -> report.Passes:
        """How often each input's fibre is read over each rank, as written and as derived."""
        return self._derivation.passes

    @property
    def steps(self) -> report.Steps:
        """The rules that led from the text to the streaming form, each with its reason."""
        return self._derivation.steps

    @property
    def refusals(self) -> tuple[report.Refusal, ...]:
        """The rules that did not fire where they would have saved a pass, and why."""
        return self._derivation.refusals

    @property
    def streams(self) -> tuple[report.Stream, ...]:
        """The streaming algorithm, one per traversal: how it begins, goes on, merges and ends."""
        return self._derivation.streams

    def explain(self) -> str:
        """The whole derivation as text: passes, steps, the streaming form, refusals."""
        return self.explanation()

    def plan(
        self,
        *,
        machine: Optional[str] = None,
        params: Optional[Mapping[str, float]] = None,
        dtypes: Optional[Mapping[str, str]] = None,
        **sizes: int,
    ) -> report.Plan:
        """What a machine should do with it at these sizes: kernels, tiles, bytes against the bound, predicted time.

        `machine` is `host` (as when nothing is said), `h200`, `h100`, `a100`, `cpu-generic` or a file that ends in
        `.toml`. No GPU is needed to plan for one. `dtypes` says number types of inputs that differ from the declared.
        """
        text = self.plan_json(machine, sizes, params or {}, dtypes or {})
        return report.Plan.from_json(json.loads(text))

    def last_plan(self) -> Optional[report.Plan]:
        """The plan of the kernel that the last call ran; `None` before the first."""
        text = self.last_plan_json()
        return None if text is None else report.Plan.from_json(json.loads(text))

    def source(
        self,
        target: Target = "pseudo",
        *,
        machine: Optional[str] = None,
        params: Optional[Mapping[str, float]] = None,
        dtypes: Optional[Mapping[str, str]] = None,
        **sizes: int,
    ) -> str:
        """The kernels' source at these sizes: the tile program as `pseudo`, or `cuda` C++ (for an H200 if no other
        machine is named)."""
        if target == "cuda" and machine is None:
            machine = "h200"
        return self.source_text(target, machine, sizes, params or {}, dtypes or {})

    @property
    def __signature__(self) -> inspect.Signature:
        """What a call takes, for `help` and editors."""
        kind, none = inspect.Parameter, inspect.Parameter.empty
        taken = {name: kind(name, kind.POSITIONAL_OR_KEYWORD) for name in self.inputs if not iskeyword(name)}
        for name, value in [*self.parameters, ("out", None)]:
            if not iskeyword(name):
                given = none if value is None and name != "out" else value
                taken.setdefault(name, kind(name, kind.KEYWORD_ONLY, default=given))
        taken.setdefault("sizes", kind("sizes", kind.VAR_KEYWORD))
        return inspect.Signature(list(taken.values()))

    def __repr__(self) -> str:
        head = f"<einloom.Cascade {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}>"
        return "\n".join([head, *self._derivation.summary()])

    def _repr_html_(self) -> str:
        return html.cascade(self)

    def _as_operator(
        self,
        arrays: Sequence[Any],
        out: Optional[Sequence[Any]],
        sizes: Mapping[str, int],
        params: Mapping[str, float],
    ) -> Any:
        """Calls whose result must carry a gradient, or whose tensors are not in memory, end here: they run as an operator of
        PyTorch."""
        from .torch.gradient import call

        return call(self, arrays, out, sizes, params)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Dynamo cannot look into the extension module: it gets the operator, and what is known before there are arrays.
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            given = {n: a for n, a in kwargs.items() if isinstance(a, torch.Tensor)}
            others = tuple((n, a) for n, a in kwargs.items() if n not in given)
            name, order = self._traced(len(args), tuple(given), others)
            arrays = (*args, *given.values())
            return getattr(torch.ops.einloom, name).default(*[arrays[k] for k in order])
        return _call(self, *args, **kwargs)

    def _traced(
        self, positional: int, named: tuple[str, ...], others: tuple[tuple[str, Any], ...]
    ) -> tuple[str, tuple[int, ...]]:
        """The name of a call's operator, and which of its tensors, by position and then by name, each input is."""
        from .torch.gradient import traced

        return traced(self, positional, named, others)

    # What `torch.compiler.assume_constant_result` says, without an import of PyTorch.
    _traced._dynamo_marked_constant = True  # type: ignore[attr-defined]

    # Kernels are all that a program gathers, and copies may share them.
    def __copy__(self) -> Cascade:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Cascade:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.text, self.origin, self.options)


def _again(kind: type[Cascade], text: str, origin: str, options: dict[str, Any]) -> Cascade:
    """A program that was pickled. Its kernels are made anew."""
    return kind(text, origin, **options)


def compile(
    program: Union[str, PathLike[str]],
    *,
    exact: bool = False,
    dtypes: Literal["follow", "declared"] = "follow",
    threads: Optional[int] = None,
    sizes: Optional[Mapping[str, int]] = None,
    params: Optional[Mapping[str, float]] = None,
    machine: Optional[str] = None,
    tiles: Optional[Mapping[str, int]] = None,
    origin: Optional[str] = None,
) -> Cascade:
    """Reads, checks and derives a program. Kernels are made when it is called.

    `program` is a text, or the path of a file (anything that is a path object, ends in `.ein`, or has no line break and
    names a file). `exact` forbids the one liberty of rounding that matrix units take. `dtypes="declared"` refuses floating-point
    arrays of another type than the declared one, which otherwise replace it. `threads` limits the processor's threads.
    `sizes` and `params` are values that calls need not give again. `machine` plans for another machine than the one that
    runs it. `tiles` are tile sizes by index in place of the planner's, as tuning tells them. `origin` is what messages call the text.

    Raises `CascadeError` with everything that is wrong with the text.
    """
    if dtypes not in ("follow", "declared"):
        raise UsageError(f"dtypes is {dtypes!r}; it is 'follow' or 'declared'")
    text, name = _text(program)
    return Cascade(
        text,
        origin or name,
        exact=exact,
        follow=dtypes == "follow",
        threads=threads,
        sizes=dict(sizes or {}),
        params=dict(params or {}),
        machine=machine,
        tiles=dict(tiles or {}),
    )


def _text(program: Union[str, PathLike[str]]) -> tuple[str, str]:
    """The text of a program and what to call it."""
    if isinstance(program, str) and "\n" in program:
        return program, "<cascade>"
    path = Path(fspath(program))
    if isinstance(program, str) and path.suffix != ".ein" and not path.is_file():
        return program, "<cascade>"
    return path.read_text(encoding="utf-8"), str(path)
