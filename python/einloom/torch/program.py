"""`einloom.from_torch`: a PyTorch function as a cascade."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable, Sequence

import torch
from torch.fx import Node

from .capture import obstacle, to_aten
from .convert import Cascade, convert
from .errors import NotConvertible, place_of
from .graphs import kind_of, operations
from .kernels import compiled
from .operator import Operator
from .rewrite import operator_of, reference_of


_LIMIT: type[Exception] = torch._dynamo.exc.FailOnRecompileLimitHit


def _unlimited() -> dict[str, int]:
    known = ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit")
    return {name: 1 << 30 for name in known if hasattr(torch._dynamo.config, name)}


class TorchProgram:
    """A PyTorch function that runs as one cascade, and the cascade itself.

    Calls take what the function takes; other shapes are converted when they first come. Everything that an
    `einloom.Cascade` tells (`passes`, `steps`, `plan`, `source`, …) is told of the cascade at the example's sizes.
    """

    def __init__(self, function: Callable[..., Any], example_inputs: Sequence[Any]) -> None:
        self.function = function
        self._made: list[tuple[Cascade, Operator]] = []
        self._call = torch.compile(function, backend=self._compile, fullgraph=True, dynamic=False)
        self._failure: NotConvertible | None = None
        with torch.no_grad():
            self(*example_inputs)

    @property
    def text(self) -> str:
        """The cascade's text."""
        return self._made[0][0].text

    @property
    def operator(self) -> Operator:
        """The operator that the calls end in; it counts which path ran."""
        return self._made[0][1]

    @property
    def report(self) -> str:
        """Which path ran, and how often: the derived kernels, and PyTorch for gradients."""
        return "\n".join(made.report for made in dict.fromkeys(made for _, made in self._made))

    @property
    def cascade(self) -> Any:
        """The `einloom.Cascade` of the text."""
        return compiled(self.text, _name(self.function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._failure = None
        try:
            try:
                return self._call(*args, **kwargs)
            except _LIMIT:
                # Dynamo counts what is compiled for one piece of code, which several programs may share, and gives up.
                with torch._dynamo.config.patch(_unlimited()):
                    return self._call(*args, **kwargs)
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchProgram:
        """A copy of the function, which may be a module with parameters of its own; it is captured when it is called."""
        other = object.__new__(type(self))
        other.function, other._made, other._failure = copy.deepcopy(self.function, memo), list(self._made), None
        other._call = torch.compile(other.function, backend=other._compile, fullgraph=True, dynamic=False)
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.cascade, name)

    def __repr__(self) -> str:
        return f"<einloom.from_torch {_name(self.function)}>\n{self.text}"

    def _repr_html_(self) -> Any:
        return self.cascade._repr_html_()

    def _compile(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            graph = to_aten(module, inputs)
            found = obstacle(graph)
            if found is not None:
                raise NotConvertible(str(found[0].target), found[1], place_of(found[0]))
            cascade, ran, outside = whole(graph, _name(self.function), _parameters(self.function))
        except NotConvertible as e:
            self._failure = e
            raise
        vals = [p.meta["val"] for p in cascade.placeholders]
        if len({v.device for v in vals}) > 1:
            self._failure = NotConvertible(_name(self.function), "its tensors are on several devices")
            raise self._failure
        if not cascade.inputs:
            self._failure = NotConvertible(_name(self.function), "it reads no tensor")
            raise self._failure
        made = operator_of(cascade, ran, _name(self.function))
        self._made.append((cascade, made))
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        place = {p: k for k, p in enumerate(placeholders)}
        held = [None if p in place else getattr(graph, str(p.target)) for p in cascade.placeholders]
        chosen = [place.get(p, 0) for p in cascade.placeholders]

        def run(*given: Any) -> Any:
            results = made(*(given[k] if h is None else h for k, h in zip(chosen, held)))
            return outside(*(results if isinstance(results, tuple) else (results,)))

        return run


def from_torch(function: Callable[..., Any], example_inputs: torch.Tensor | Sequence[Any]) -> TorchProgram:
    """The cascade of a PyTorch function or module, captured on `example_inputs`.

    Raises `NotConvertible` with the operation that has no cascade, the reason and the line of the program.
    """
    given = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    return TorchProgram(function, given)


def whole(
    graph: torch.fx.GraphModule, name: str, parameters: Sequence[str]
) -> tuple[Cascade, torch.fx.GraphModule, torch.fx.GraphModule]:
    """A whole graph as one cascade; its reference; and what is left to PyTorch after it: views of the results that
    merge dimensions, which cost nothing there."""
    placeholders = [n for n in graph.graph.nodes if n.op in ("placeholder", "get_attr")]
    rank = {p: k for k, p in enumerate(parameters)}
    order = sorted(placeholders, key=lambda n: rank.get(n.meta.get("einloom_name", ""), len(rank)))
    (end,) = graph.graph.find_nodes(op="output")
    ends = [n for n in torch.utils._pytree.tree_leaves(end.args[0]) if isinstance(n, Node)]
    nodes = operations(graph)
    results = list(dict.fromkeys(ends))
    trailing: set[Node] = set()
    cascade = convert(name, order, nodes, results)
    if cascade.flattened:
        trailing = _trailing_views(nodes)
        inside = [n for n in nodes if n not in trailing]
        needed = {g for n in trailing for g in n.all_input_nodes} | set(ends)
        results = [n for n in inside if n in needed]
        cascade = convert(name, order, inside, results)
    inside = [n for n in nodes if n not in trailing]
    reference = reference_of(graph, inside, cascade.placeholders, results)
    rest = torch.fx.Graph()
    env: dict[Node, Node] = {n: rest.placeholder(f"y{k}") for k, n in enumerate(results)}
    for node in (n for n in nodes if n in trailing):
        env[node] = rest.node_copy(node, lambda n: env[n])
    rest.output(torch.fx.map_arg(end.args[0], lambda n: env[n]))
    return cascade, reference, torch.fx.GraphModule(graph, rest)


def _trailing_views(nodes: Sequence[Node]) -> set[Node]:
    """Views that nothing but results and other such views read."""
    trailing: set[Node] = set()
    for node in reversed(nodes):
        after = all(u.op == "output" or u in trailing for u in node.users)
        if after and kind_of(node).view and all(g.op != "placeholder" for g in node.all_input_nodes):
            trailing.add(node)
    return trailing


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "program"


def _parameters(function: Callable[..., Any]) -> list[str]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return []
