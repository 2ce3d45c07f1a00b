"""What is asked of a graph of ATen operations: bytes, kinds of operations, order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import prod
from typing import Any, Iterable, Mapping

import torch
from torch.fx import Node

from .convert import Converter, is_contraction
from .errors import NotConvertible, place_of
from .terms import reduces
from .values import Value, is_simple


def operations(module: torch.fx.GraphModule) -> list[Node]:
    """All nodes that compute, in order."""
    return [n for n in module.graph.nodes if n.op == "call_function"]


def tensor_bytes(node: Node) -> int:
    """Bytes that hold a value: copies that a view only pretends count once."""
    val = node.meta.get("val")
    vals = val if isinstance(val, (tuple, list)) else [val]
    total = 0
    for v in vals:
        if isinstance(v, torch.Tensor):
            count = prod(int(n) for n, s in zip(v.shape, v.stride()) if s != 0)
            total += count * v.element_size()
    return total


def moves_nothing(node: Node) -> bool:
    """A view: its result is its operand's memory, read in another way."""
    target = node.target
    if getattr(target, "__name__", "") == "getitem":
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name.split("::")[1]
    given = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], Node) else None
    made = node.meta.get("val")
    if name in ("reshape", "flatten", "unflatten", "contiguous", "to"):  # views where they can be, copies elsewhere
        if not isinstance(given, torch.Tensor) or not isinstance(made, torch.Tensor) or given.dtype != made.dtype:
            return False
        if name == "contiguous":
            return given.is_contiguous()
        return name != "to" and _viewable(given, made.shape)
    returns = target._schema.returns
    aliases = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    return aliases or name in ("alias", "detach")


def _viewable(given: torch.Tensor, shape: Iterable[Any]) -> bool:
    like = torch.empty_strided(given.shape, given.stride(), device="meta")
    try:
        like.view(tuple(shape))
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class Kind:
    """What an operation is, read off its definition."""

    refused: NotConvertible | None = None
    view: bool = False
    """The same elements elsewhere."""
    reduction: bool = False
    contraction: bool = False
    """Nothing but sums of products of tensors."""


def kind_of(node: Node) -> Kind:
    """Tries to define one operation by itself."""
    converter = Converter()
    try:
        if _devices(node) > 1:
            raise NotConvertible(str(node.target), "its operands are on several devices", place_of(node))
        for given in node.all_input_nodes:
            if isinstance(given.meta.get("val"), (tuple, list)):
                parts = [_part(given, v) for v in given.meta["val"]]
                converter.values[given] = tuple(converter.input(p, "x") for p in parts)
            else:
                converter.values[given] = converter.input(given, "x")
        given_count = len(converter.inputs)
        converter.call(node)
    except NotConvertible as e:
        return Kind(refused=e)
    value = converter.values[node]
    values = [v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, Value)]
    terms = [v.term for v in values] + [s.term for s in converter.statements]
    reduction = any(reduces(t) for t in terms)
    view = not converter.statements and all(is_simple(t) and not _gathers(t) for t in terms)
    return Kind(
        view=view and bool(given_count),
        reduction=reduction,
        contraction=reduction and all(is_contraction(t) for t in terms if reduces(t)),
    )


def _devices(node: Node) -> int:
    vals = torch.utils._pytree.tree_leaves([given.meta.get("val") for given in node.all_input_nodes])
    return len({v.device for v in vals if isinstance(v, torch.Tensor)})


def _gathers(term: Any) -> bool:
    at = getattr(term, "at", ()) or ((term.index,) if hasattr(term, "index") else ())
    return any(True for i in at for _ in i.gathers())


def _part(node: Node, val: torch.Tensor) -> Any:
    graph = torch.fx.Graph()
    part = graph.placeholder(node.name)
    part.meta = {"val": val}
    return part


def in_order(nodes: Iterable[Node], group: Mapping[Node, Any]) -> list[Any] | None:
    """Nodes and groups of nodes such that everything comes after what it needs; `None` if groups need each other."""
    nodes = list(nodes)
    unit = {n: group.get(n, n) for n in nodes}
    needs: dict[Any, set[Any]] = {}
    users: dict[Any, set[Any]] = {}
    order: dict[Any, None] = {}
    for n in nodes:
        u = unit[n]
        order[u] = None
        needs.setdefault(u, set())
        for given in n.all_input_nodes:
            if given in unit and unit[given] is not u:
                needs[u].add(unit[given])
                users.setdefault(unit[given], set()).add(u)
    # As early as it can be, in the order of the graph.
    first = {u: k for k, u in enumerate(order)}
    ready = [(first[u], u) for u in order if not needs[u]]
    heapq.heapify(ready)
    out = []
    while ready:
        _, u = heapq.heappop(ready)
        out.append(u)
        for user in users.get(u, ()):
            needs[user].discard(u)
            if not needs[user]:
                heapq.heappush(ready, (first[user], user))
    return out if len(out) == len(order) else None
