"""Cascades as operators of PyTorch: shapes without data, gradients, and whatever traces or captures operators."""

from __future__ import annotations

import hashlib
import keyword
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence, Union

import torch

from ..errors import GradientError, OutOfRange
from .accurate import settle
from .inductor import announce
from .integers import check_within
from .log import log

Reference = Callable[..., Any]
"""The same computation in PyTorch's own operations: takes the inputs, gives a tensor or several."""

Size = Union[int, tuple[int, int]]
"""A size that is fixed, or that of a dimension: the number of an input and that of its dimension."""

Shape = Union[tuple[Size, ...], Callable[..., Sequence[Any]]]
"""A shape by its sizes, or as a function of the inputs."""


@dataclass(frozen=True)
class Output:
    """What an operator gives."""

    sizes: Shape
    dtype: Union[torch.dtype, int]
    """A number type, or the number of the input whose type it follows."""

    def shape(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """For these inputs, which may be without data."""
        if not isinstance(self.sizes, tuple):
            return list(self.sizes(*tensors))
        return [s if isinstance(s, int) else tensors[s[0]].shape[s[1]] for s in self.sizes]


@dataclass(eq=False)
class Operator:
    """A cascade that PyTorch knows as an operator, `torch.ops.einloom.<name>`.

    `derived` counts runs of the cascade's own kernels, `backward` runs of the PyTorch path that gives gradients,
    and `replaced` those that the kernels refused, because of an index or an integer, and PyTorch computed.
    """

    name: str
    text: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    kernel: Callable[..., Any]
    reference: Reference
    limit: int | None = None
    """The largest magnitude that its integers of 32 and of 64 bits may have, if that is less than what 32 bits hold."""
    derived: int = 0
    backward: int = 0
    replaced: int = 0
    op: Any = field(default=None, repr=False)
    go_back: Any = field(default=None, repr=False)
    announced: bool = field(default=False, repr=False)
    """Inductor knows it."""
    awaited: list[Future[None]] = field(default_factory=list, repr=False)
    """Kernels that are being made for it."""
    expected: list[Any] = field(default_factory=list, repr=False)
    """The inputs that they are made for."""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """One tensor, or a tuple of them."""
        return self.op(*tensors)

    @property
    def report(self) -> str:
        """Which path ran, and how often."""
        forward = f"{self.name}: derived kernels ran {_times(self.derived)}"
        if self.replaced:
            forward += f"; PyTorch computed {_times(self.replaced)} what indices or integers were out of range for"
        if not self.backward:
            return forward
        return f"{forward}; gradients came from the reference path {_times(self.backward)}: recomputed by PyTorch"

    # ---- what PyTorch calls

    def _forward(self, *tensors: torch.Tensor) -> Any:
        try:
            results = self._run(tensors)
        except OutOfRange as e:
            if not isinstance(self.reference, torch.fx.GraphModule):
                raise
            # Written in PyTorch, it means what eager PyTorch does: integers of 64 bits, indices from the end, or its own error.
            if not self.replaced:
                log("fusion", f"{self.name}: {str(e).splitlines()[0]}; PyTorch computes it")
            self.replaced += 1
            settle()
            with torch.no_grad(), torch._C._DisableAutocast():
                found = self.reference(*tensors)
            # As kernels give them and as `_fake` says: dense, and in memory of their own.
            dense = [r.clone(memory_format=torch.contiguous_format) for r in _several(found)]
            results = dense[0] if len(dense) == 1 else dense
        if isinstance(results, torch.Tensor):
            return self._as_said(results, self.outputs[0], tensors)
        return tuple(self._as_said(r, o, tensors) for r, o in zip(results, self.outputs))

    def _run(self, tensors: Sequence[torch.Tensor]) -> Any:
        """By the kernels."""
        if self.limit is not None:
            for name, tensor in zip(self.inputs, tensors):
                if tensor.dtype in (torch.int64, torch.int32):
                    check_within(tensor, self.limit, name)
        if self.awaited:
            wait(self.awaited)
            self.awaited.clear()
        if torch.is_grad_enabled():
            with torch.no_grad():
                results = self.kernel(*tensors)
        else:
            results = self.kernel(*tensors)
        self.derived += 1
        return results

    def _as_said(self, result: torch.Tensor, output: Output, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """In PyTorch's number type: the language's widest integers have 32 bits."""
        kind = self._dtype(output, tensors)
        return result if result.dtype == kind else result.to(kind)

    def _dtype(self, output: Output, tensors: Sequence[torch.Tensor]) -> torch.dtype:
        return output.dtype if isinstance(output.dtype, torch.dtype) else tensors[output.dtype].dtype

    def _fake(self, *tensors: torch.Tensor) -> Any:
        # Every compiler of graphs comes here before it lowers them.
        self.announced = self.announced or announce((self.op, self.go_back))
        made = []
        for output in self.outputs:
            shape = output.shape(tensors)
            made.append(tensors[0].new_empty(shape, dtype=self._dtype(output, tensors)))
        return made[0] if len(made) == 1 else tuple(made)

    def _gradients(
        self, gradients: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> list[torch.Tensor]:
        """Recomputes forward by PyTorch, and goes back through that."""
        if not self.backward:
            log("gradient", f"{self.name}: the gradient comes from the reference path (recomputed by PyTorch)")
        self.backward += 1
        settle()
        with torch.enable_grad(), torch._C._DisableAutocast():
            leaves = [t.detach().requires_grad_(n) for t, n in zip(tensors, needed)]
            results = _several(self.reference(*leaves))
            floating = [r for r in results if r.dtype.is_floating_point]
            wanted = [t for t in leaves if t.requires_grad]
            if not all(t.view_as(t).requires_grad for t in wanted):
                raise GradientError(f"{self.name}: nothing records gradients here, so that there would be none")
            connected = [(r, g) for r, g in zip(floating, gradients) if r.requires_grad]
            found = torch.autograd.grad([r for r, _ in connected], wanted, [g for _, g in connected], allow_unused=True)
        return [torch.zeros_like(t) if g is None else g.contiguous() for t, g in zip(wanted, found)]


_KNOWN: dict[str, Operator] = {}
_LOCK = threading.Lock()
_LIBRARY = torch.library.Library("einloom", "FRAGMENT")


def known() -> list[Operator]:
    """All operators made so far."""
    return list(_KNOWN.values())


def operator(
    name: str,
    text: str,
    inputs: Sequence[str],
    outputs: Sequence[Output],
    kernel: Callable[[], Callable[..., Any]],
    reference: Reference,
    sizes: object = None,
    limit: int | None = None,
) -> Operator:
    """The operator of a cascade. `kernel()` gives what runs it; `sizes` are those that the reference is for, if it is not
    for all. One text has one operator for each."""
    with _LOCK:
        identity = repr((text, tuple(inputs), sizes))
        if identity not in _KNOWN:
            digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
            made = Operator(f"{name}_{digest}", text, tuple(inputs), tuple(outputs), kernel(), reference, limit)
            _register(made)
            _KNOWN[identity] = made
        return _KNOWN[identity]


def _register(o: Operator) -> None:
    arguments = ", ".join(f"Tensor {_argument(k, n)}" for k, n in enumerate(o.inputs))
    returns = "Tensor" if len(o.outputs) == 1 else f"({', '.join('Tensor' for _ in o.outputs)})"
    # Kernels take any strides: none need be kept, or copied to, on their account.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    _LIBRARY.define(f"{o.name}({arguments}) -> {returns}", tags=tags)
    _LIBRARY.define(f"{o.name}_backward(Tensor[] gradients, Tensor[] inputs, bool[] needed) -> Tensor[]", tags=tags)
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(o.name, o._forward, device)
        _LIBRARY.impl(f"{o.name}_backward", o._gradients, device)
    torch.library.register_fake(f"einloom::{o.name}", o._fake, lib=_LIBRARY)

    @torch.library.register_fake(f"einloom::{o.name}_backward", lib=_LIBRARY)
    def _(gradients: Any, inputs: Any, needed: Any) -> list[torch.Tensor]:
        return [torch.empty_like(t, memory_format=torch.contiguous_format) for t, n in zip(inputs, needed) if n]

    go_back = getattr(torch.ops.einloom, f"{o.name}_backward").default
    floating = [k for k in range(len(o.outputs))]

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        made = output if isinstance(output, tuple) else (output,)
        ctx.einloom_results = [k for k in floating if made[k].dtype.is_floating_point]
        ctx.mark_non_differentiable(*(t for t in made if not t.dtype.is_floating_point))

    def backward(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise GradientError(f"{o.name}: the reference path gives first derivatives only")
        needed = [bool(n) for n in ctx.needs_input_grad[: len(o.inputs)]]
        given = [gradients[k] for k in ctx.einloom_results]
        found = iter(go_back(given, list(ctx.saved_tensors), needed))
        return tuple(next(found) if n else None for n in needed)

    torch.library.register_autograd(f"einloom::{o.name}", backward, setup_context=setup, lib=_LIBRARY)
    o.op, o.go_back = getattr(torch.ops.einloom, o.name).default, go_back


def _several(results: Any) -> Sequence[torch.Tensor]:
    return results if isinstance(results, (tuple, list)) else (results,)


def _argument(number: int, name: str) -> str:
    taken = keyword.iskeyword(name) or name in ("self", "out", "from")
    return f"{name}_{number}" if taken or not name.isidentifier() else name


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
