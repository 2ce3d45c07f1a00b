"""Compiled cascades as operators of PyTorch, and calls of them whose results must carry gradients."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from ..errors import GradientError
from .language import Program, read
from .operator import Operator, Output, operator
from .reference import TYPES, Evaluation, sizes_of


def operator_of(
    cascade: Any, sizes: Mapping[str, int] | None = None, params: Mapping[str, float] | None = None
) -> Operator:
    """A compiled cascade as an operator: `torch.compile(…, fullgraph=True)` traces it, CUDA graphs capture it, and its
    inputs may require gradients, which the reference path computes."""
    given, values = dict(sizes or {}), dict(params or {})
    made: dict[Any, Operator] = cascade.__dict__.setdefault("_operators", {})
    key = (tuple(sorted(given.items())), tuple(sorted(values.items())))
    if key not in made:
        made[key] = _operator(cascade, given, values)
    return made[key]


def _operator(cascade: Any, given: dict[str, int], values: dict[str, float]) -> Operator:
    program = read(cascade.canonical)
    names = [d.name for d in program.inputs]
    outputs = [Output(_sizes(program, d.name, names, given), _dtype(program, d.dtype)) for d in program.outputs]

    def kernel(*tensors: torch.Tensor) -> Any:
        return cascade(*tensors, **given, **values)

    def reference(*tensors: torch.Tensor) -> Any:
        shapes = {n: t.shape for n, t in zip(names, tensors)}
        run = Evaluation(program, sizes_of(program, shapes, given), values)
        kinds = [o.dtype if isinstance(o.dtype, torch.dtype) else tensors[o.dtype].dtype for o in outputs]
        results = run.run(tensors, kinds)
        return results[0] if len(results) == 1 else results

    identity = cascade.canonical + repr((sorted(given.items()), sorted(values.items())))
    return operator(cascade.name, identity, names, outputs, lambda: kernel, reference)


def _sizes(program: Program, output: str, names: Sequence[str], given: Mapping[str, int]) -> Any:
    """The shape of an output, as a function of the inputs."""
    statement = next(s for s in program.statements if s.name == output)
    ranks = [program.rank(getattr(i, "text", "")) for i in statement.at]

    def shape(*tensors: torch.Tensor) -> list[Any]:
        sizes = sizes_of(program, {n: t.shape for n, t in zip(names, tensors)}, given)
        return [sizes[r] for r in ranks]

    return shape


def _dtype(program: Program, declared: str) -> torch.dtype | int:
    """The declared type, or the input that it follows: floating-point types are those of the caller's tensors."""
    kind = TYPES[declared]
    follows = [k for k, d in enumerate(program.inputs) if d.dtype == declared]
    return follows[0] if follows and kind.is_floating_point else kind


def call(
    cascade: Any,
    arrays: Sequence[Any],
    out: Sequence[Any] | None,
    sizes: Mapping[str, int],
    params: Mapping[str, float],
) -> Any:
    """A call some of whose inputs require gradients."""
    if out is not None:
        raise GradientError(f"{cascade.name}: out= takes no gradient; call it under torch.no_grad()")
    return operator_of(cascade, sizes, params)(*arrays)
