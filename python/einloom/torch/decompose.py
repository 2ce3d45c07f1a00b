"""Operations without a definition here are taken through PyTorch's own decompositions, where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from .capture import functionalise
from .errors import NotConvertible

if TYPE_CHECKING:
    from .convert import Converter


def decomposed(converter: Converter, node: torch.fx.Node) -> Any:
    """The values of a node, from the graph of its decomposition."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        converter.refuse("it is not an ATen operation")
    function = core_aten_decompositions().get(target)
    if function is None and target._can_decompose():
        function = target.decompose
    function = function or decomposition_table.get(target)
    if function is None:
        converter.refuse("it has no definition as a cascade")
    graph = _trace(function, node)
    inner: dict[torch.fx.Node, Any] = {}
    outer = [a for a in _flat((node.args, node.kwargs)) if isinstance(a, torch.fx.Node)]
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    for placeholder, given in zip(placeholders, outer, strict=True):
        inner[placeholder] = converter.values[given]
    for inside in graph.graph.nodes:
        if inside.op == "get_attr":
            converter.refuse("its decomposition holds a constant tensor")
        if inside.op == "call_function":
            if inside.target is target:
                converter.refuse("it has no definition as a cascade")
            converter.values |= inner
            inside.meta.setdefault("einloom_name", node.meta.get("einloom_name", node.name))
            try:
                converter.call(inside)
            except NotConvertible as e:
                converter.refuse(e.reason if e.operation == str(target) else f"it is made of {e.operation}: {e.reason}")
            inner[inside] = converter.values[inside]
    converter.node = node
    (result,) = graph.graph.find_nodes(op="output")
    converter.values |= inner
    return converter.argument(result.args[0])


def _flat(tree: Any) -> list[Any]:
    return torch.utils._pytree.arg_tree_leaves(*tree[0], **tree[1])


def plain(tree: Any) -> Any:
    """With lists that may be written to: some decompositions do."""
    if isinstance(tree, dict):
        return {k: plain(v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [plain(v) for v in tree]
    return tuple(map(plain, tree)) if type(tree) is tuple else tree


def _trace(function: Any, node: torch.fx.Node) -> torch.fx.GraphModule:
    """The decomposition's own graph, on tensors without data."""
    leaves, spec = torch.utils._pytree.tree_flatten(plain((node.args, dict(node.kwargs))))
    tensors = [a.meta["val"] for a in leaves if isinstance(a, torch.fx.Node)]

    def run(*given: torch.Tensor) -> Any:
        queue = iter(given)
        full = [next(queue) if isinstance(a, torch.fx.Node) else a for a in leaves]
        args, kwargs = torch.utils._pytree.tree_unflatten(full, spec)
        return function(*args, **kwargs)

    traced = make_fx(run, tracing_mode="fake")(*tensors)
    functionalise(traced)
    return traced
