"""Compiled cascades as operators of PyTorch, and calls of them whose results must carry gradients."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch.autograd import forward_ad

from ..errors import DeviceError, DtypeError, GradientError, MissingInput, UnknownInput, UsageError
from .accurate import settle
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
    """A call some of whose inputs require gradients, or are not in memory."""
    devices: dict[torch.device, str] = {}
    for name, array in zip(cascade.inputs, arrays):
        devices.setdefault(array.device, name)
    if len(devices) > 1:
        where = " and ".join(f"{name} on {device}" for device, name in devices.items())
        raise DeviceError(f"{cascade.name}: all arrays of a call are on one device, but {where}")
    if forward_ad._current_level >= 0 and has_tangents(arrays):
        raise GradientError(f"{cascade.name}: there are no derivatives forwards (jvp), only backwards")
    if out is not None and any(is_dispatched(a) for a in arrays):
        raise DeviceError(f"{cascade.name}: its inputs are not in memory, so that there is nothing to write to out=")
    if out is not None:
        raise GradientError(f"{cascade.name}: out= takes no gradient; call it under torch.no_grad()")
    made = operator_of(cascade, sizes, params)
    if any(torch._C._functorch.is_gradtrackingtensor(a) for a in arrays):
        return _Function.apply(made, *arrays)
    return made(*arrays)


class _Function(torch.autograd.Function):
    """An operator under `torch.func.grad` and what is made of it, which look for no other rule of a gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(made: Operator, *tensors: torch.Tensor) -> Any:
        return made(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.made = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.floating = [k for k, o in enumerate(outputs) if o.dtype.is_floating_point]
        ctx.mark_non_differentiable(*(o for o in outputs if not o.dtype.is_floating_point))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        made, tensors = ctx.made, ctx.saved_tensors
        wanted = [k for k, n in enumerate(ctx.needs_input_grad[1:]) if n]
        made.backward += 1
        settle()

        def reference(*some: torch.Tensor) -> Any:
            given = list(tensors)
            for k, t in zip(wanted, some):
                given[k] = t
            results = made.reference(*given)
            results = results if isinstance(results, (tuple, list)) else (results,)
            return tuple(results[k] for k in ctx.floating)

        _, back = torch.func.vjp(reference, *(tensors[k] for k in wanted))
        found = dict(zip(wanted, back(tuple(gradients[k] for k in ctx.floating))))
        return (None, *(found.get(k) for k in range(len(tensors))))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise GradientError(f"{ctx.made.name}: there are no derivatives forwards (jvp), only backwards")


def has_tangents(arrays: Sequence[Any]) -> bool:
    """Whether one of these carries a derivative forwards, at the level that is entered."""
    return any(isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None for a in arrays)


def is_dispatched(tensor: torch.Tensor) -> bool:
    """Whether PyTorch's dispatcher knows what the tensor is, and its memory does not: it has only a shape, or a
    transformation of `torch.func` wraps it."""
    if tensor.is_meta or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return True
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def traced(
    cascade: Any, positional: int, named: Sequence[str], others: Sequence[tuple[str, Any]]
) -> tuple[str, tuple[int, ...]]:
    """What Dynamo puts into its graph for a call: the operator's name, and the number of the tensor that each input is."""
    inputs = list(cascade.inputs)
    program = read(cascade.canonical)
    sizes: dict[str, int] = {}
    params: dict[str, float] = {}
    for name, value in others:
        if name == "out" and value is None:
            continue
        if name == "out":
            raise UsageError(f"{cascade.name}: out= is not traced; call it outside of torch.compile")
        if name in program.params:
            params[name] = float(value)
        elif name in inputs:
            raise DtypeError(f"{name}: {type(value).__name__} is no tensor")
        else:
            sizes[name] = int(value)
    given = [*inputs[:positional], *named]
    for name in inputs:
        if name not in given:
            raise MissingInput(f"{cascade.name}: the input {name} is missing")
    if len(given) != len(set(given)) or positional > len(inputs) or set(given) != set(inputs):
        raise UnknownInput(f"{cascade.name} takes {', '.join(inputs)}; given are {positional} tensors and {', '.join(named)}")
    return operator_of(cascade, sizes, params).name, tuple(given.index(name) for name in inputs)
