"""Puts operators in the place of regions."""

from __future__ import annotations

import operator as python_operator

import torch
from torch.fx import Node

from .convert import Cascade
from .graphs import in_order
from .kernels import compiled
from .operator import Operator, Output, operator
from .regions import Partition, Region


def operator_of(cascade: Cascade, reference: torch.fx.GraphModule, name: str) -> Operator:
    """The operator that computes a cascade, with a graph in PyTorch's operations as its reference."""
    outputs = [Output(sizes, dtype) for sizes, dtype in zip(cascade.output_sizes, cascade.output_dtypes)]
    # One text has any sizes; a graph has those that it was captured at.
    values = [node.meta.get("val") for node in reference.graph.nodes if node.op == "placeholder"]
    sizes = tuple(tuple(map(str, v.shape)) if isinstance(v, torch.Tensor) else None for v in values)
    kernel = lambda: compiled(cascade.text, f"<{name}>")  # noqa: E731
    return operator(name, cascade.text, cascade.inputs, outputs, kernel, reference, sizes, cascade.limit)


def reference_of(
    module: torch.fx.GraphModule, nodes: list[Node], inputs: tuple[Node, ...], outputs: list[Node]
) -> torch.fx.GraphModule:
    """A part of a graph as a module of its own."""
    needed, todo = set(outputs), list(outputs)
    while todo:
        found = [n for n in todo.pop().all_input_nodes if n not in needed and n not in inputs]
        needed.update(found)
        todo += found
    graph = torch.fx.Graph()
    env: dict[Node, Node] = {}
    for k, node in enumerate(inputs):
        env[node] = graph.placeholder(f"x{k}")
        env[node].meta = {"val": node.meta.get("val")}
    for node in (n for n in nodes if n in needed):
        for given in (g for g in node.all_input_nodes if g not in env):
            # It is named, but the results do not depend on it (`meshgrid` takes all of its operands).
            like = given.meta["val"]
            env[given] = graph.call_function(
                torch.ops.aten.zeros.default, (list(like.shape),), {"dtype": like.dtype, "device": like.device}
            )
        env[node] = graph.node_copy(node, lambda n: env[n])
    made = tuple(env[n] for n in outputs)
    graph.output(made[0] if len(made) == 1 else made)
    return torch.fx.GraphModule(module, graph)


def with_operators(module: torch.fx.GraphModule, partition: Partition) -> tuple[torch.fx.GraphModule, list[Operator]]:
    """The graph in which every region is one call of its operator."""
    region_of = {n: r for r in partition.regions for n in r.nodes}
    nodes = [n for n in module.graph.nodes if n.op != "output"]
    order = in_order(nodes, region_of)
    assert order is not None, "regions were grown so that none needs another that needs it"
    graph = torch.fx.Graph()
    env: dict[Node, Node] = {}
    made = []
    for unit in order:
        if isinstance(unit, Region):
            made.append(_call(module, graph, unit, env))
        else:
            env[unit] = graph.node_copy(unit, lambda n: env[n])
    (end,) = module.graph.find_nodes(op="output")
    graph.output(torch.fx.map_arg(end.args[0], lambda n: env[n]))
    graph.eliminate_dead_code()
    rewritten = torch.fx.GraphModule(module, graph)
    return rewritten, made


def _call(module: torch.fx.GraphModule, graph: torch.fx.Graph, region: Region, env: dict[Node, Node]) -> Operator:
    cascade = region.cascade
    assert cascade is not None
    place = {n: k for k, n in enumerate(module.graph.nodes)}
    members = sorted(region.nodes | _free_ancestors(region), key=place.__getitem__)
    reference = reference_of(module, members, cascade.placeholders, region.outputs)
    made = operator_of(cascade, reference, _name(cascade))
    call = graph.call_function(made.op, tuple(env[p] for p in cascade.placeholders))
    vals = [n.meta["val"] for n in region.outputs]
    call.meta = {"val": vals[0] if len(vals) == 1 else tuple(vals)}
    if len(vals) == 1:
        env[region.outputs[0]] = call
    else:
        for k, node in enumerate(region.outputs):
            env[node] = graph.call_function(python_operator.getitem, (call, k))
            env[node].meta = {"val": vals[k]}
    return made


def _free_ancestors(region: Region) -> set[Node]:
    """The masks and positions that a region computes for itself."""
    members, todo = set(region.nodes), list(region.nodes)
    while todo:
        for given in todo.pop().all_input_nodes:
            if given not in members and given not in region.inputs:
                members.add(given)
                todo.append(given)
    return members


def _name(cascade: Cascade) -> str:
    for line in cascade.text.splitlines():
        if line.startswith("cascade "):
            return line.split()[1]
    return "cascade"
