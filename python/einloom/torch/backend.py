"""`torch.compile(model, backend="einloom")`."""

from __future__ import annotations

import shutil
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

import torch

from .. import units
from . import ahead
from .capture import obstacle, to_aten
from .errors import NotConvertible, place_of
from .kernels import Planner
from .log import log
from .operator import Operator
from .regions import Partition, Partitioner, Refusal, Region
from .rewrite import with_operators


@dataclass(frozen=True)
class Report:
    """What became of one graph: the regions that Einloom took, and why it left others."""

    regions: tuple[Region, ...]
    operators: tuple[Operator, ...]
    refusals: tuple[Refusal, ...]
    rest: str
    """What runs the other operations: `inductor` or `eager`."""
    operations: int = 0
    texts: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        taken = sum(len(r.nodes) for r in self.regions)
        lines = [
            f"{units.several(len(self.regions), 'region')} of {units.several(taken, 'operation')} (of {self.operations}); "
            f"the rest goes to {self.rest}"
        ]
        times = Counter(made.name for made in self.operators)
        of = {made.name: region for region, made in zip(self.regions, self.operators)}
        for name, region in of.items():
            kernels = units.several(region.kernels, "kernel")
            often = f", {times[name]} times" if times[name] > 1 else ""
            lines.append(f"  took {name}: {units.several(len(region.nodes), 'operation')} in {kernels}{often}")
            lines += [f"    {place}" for place in _places(region)]
        for refusal in dict.fromkeys(self.refusals):
            lines.append(f"  left {refusal}")
        return "\n".join(lines)


_REPORTS: deque[Report] = deque(maxlen=64)


def reports() -> list[Report]:
    """What became of the graphs that were compiled so far, the latest last."""
    return list(_REPORTS)


def einloom(module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend. `options={"rest": "eager"}` runs what is not taken by eager PyTorch instead of inductor."""
    rest = _rest(inputs, _known(options))
    inputs = [sized(i) for i in inputs]
    graph, partition = _partition(module, inputs)
    if graph is None or not partition.regions:
        report = Report((), (), tuple(partition.refusals), rest, len(list(module.graph.nodes)))
        graph = module
    else:
        operations = sum(n.op == "call_function" for n in graph.graph.nodes)
        graph, operators = with_operators(graph, partition)
        texts = tuple(o.text for o in operators)
        order = {o.text: o for o in operators}
        made = tuple(order[r.cascade.text] for r in partition.regions if r.cascade is not None)
        for region, operator in zip(partition.regions, made):
            assert region.cascade is not None
            ahead.make(operator, [given.meta.get("val") for given in region.cascade.placeholders])
        report = Report(tuple(partition.regions), made, tuple(partition.refusals), rest, operations, texts)
    _REPORTS.append(report)
    log("fusion", str(report))
    if rest == "inductor":
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, list(inputs))
    return graph.forward if graph is module else _as_traced(graph)


def _as_traced(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """Runs a traced graph: conversions of autocast are in it, and must not be made again."""

    def run(*given: Any) -> Any:
        with torch._C._DisableAutocast():
            return graph.forward(*given)

    return run


def _partition(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[torch.fx.GraphModule | None, Partition]:
    try:
        graph = to_aten(module, inputs)
    except NotConvertible as e:
        return None, Partition([], [Refusal(e.operation, e.reason, e.place)])
    except Exception as e:  # Whatever PyTorch says while it traces: what cannot be looked into is left as it is.
        said = (str(e) or type(e).__name__).splitlines()[0]
        return None, Partition([], [Refusal("the graph", f"it cannot be traced: {said}", None)])
    found = obstacle(graph)
    if found is not None:
        node, reason = found
        return None, Partition([], [Refusal("the graph", f"{reason}; nothing may be moved around it", place_of(node))])
    return graph, Partitioner(graph, Planner(device_of(inputs))).run()


def sized(given: Any) -> Any:
    """A number where Dynamo brings a symbol for one. Asking for it makes it a guard: another size has another graph."""
    if isinstance(given, torch.SymInt):
        return int(given)
    if isinstance(given, torch.Tensor):
        for n in given.shape:
            int(n)
    return float(given) if isinstance(given, torch.SymFloat) else given


def device_of(inputs: Sequence[Any]) -> torch.device:
    """Where the graph runs."""
    return next((i.device for i in inputs if isinstance(i, torch.Tensor)), torch.device("cpu"))


_OPTIONS = ("rest",)
"""What `options` may hold."""


def _known(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, of `torch.compile(options=...)` and of a call of the backend itself."""
    options = {**(given.get("options") or {}), **{name: value for name, value in given.items() if name != "options"}}
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(f"the backend has no option {name!r}; it has {', '.join(map(repr, _OPTIONS))}")
    return options


def _rest(inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    wanted = options.get("rest")
    if wanted not in (None, "inductor", "eager"):
        raise ValueError(f"rest is {wanted!r}; it is 'inductor' or 'eager'")
    if wanted is not None:
        return str(wanted)
    if device_of(inputs).type == "cuda":
        available = torch.utils._triton.has_triton()
    else:
        available = any(shutil.which(c) for c in ("g++", "clang++", "c++"))
    if not available:
        log("fusion", "inductor has no compiler here: the rest runs in eager PyTorch")
    return "inductor" if available else "eager"


def _places(region: Region) -> list[str]:
    """The lines of the user's program that a region covers."""
    return sorted({p for n in region.nodes if (p := place_of(n))}, key=lambda p: (p.split(":")[0], _line(p)))


def _line(place: str) -> int:
    part = place.split(":")[1] if ":" in place else ""
    return int(part) if part.isdigit() else 0
