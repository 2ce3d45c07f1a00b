"""From a Python function to a functional graph of ATen operations that keeps the user's names and lines."""

from __future__ import annotations

import re
from typing import Any, Sequence

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx
from torch.fx.traceback import preserve_node_meta

from .errors import NotConvertible, place_of, user_function, user_line


class _Named(torch.fx.Interpreter):
    """Runs Dynamo's graph under a tracer and notes which ATen node gives each of its named values."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.made: dict[torch.fx.Node, torch.fx.Node] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except (DynamicOutputShapeException, DataDependentOutputException) as e:
            operation = e.func.name().replace("::", ".") if hasattr(e.func, "name") else str(e.func)
            raise NotConvertible(operation, "the size of its result depends on the data", place_of(n)) from None
        mode = get_proxy_mode()
        if mode is not None and isinstance(result, torch.Tensor):
            slot = get_proxy_slot(result, mode.tracer, None, lambda p: p)
            if slot is not None:
                self.made[n] = slot.proxy.node
        return result


def to_aten(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """Dynamo's graph in ATen operations, above autograd (so that `softmax`, `einsum` and `linear` stay themselves).

    Every node has `meta["val"]`, `meta["stack_trace"]`, `meta["einloom_name"]` and, where the user assigned the value
    to a name, `meta["einloom_named"]`. In-place operations on values of the graph are made functional.
    """
    interpreter = _Named(module)
    fake, mode = without_data(inputs)
    # Within the mode, so that what the graph makes itself (positions, constants) has no data either.
    with preserve_node_meta(), mode:
        traced = make_fx(interpreter.run, pre_dispatch=not _casts(module, inputs), tracing_mode="real")(*fake)
    _transfer_names(traced, interpreter)
    if not (torch.is_grad_enabled() and any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs)):
        _forget_gradients(traced)
    functionalise(traced)
    _fold(traced)
    simplify(traced)
    return traced


def without_data(inputs: Sequence[Any]) -> tuple[list[Any], torch._subclasses.FakeTensorMode]:
    """The inputs as tensors that have shapes and no data, and the mode that they belong to; sizes are those at hand."""
    given = [i for i in inputs if isinstance(i, torch._subclasses.FakeTensor)]
    mode = given[0].fake_mode if given else torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    real = [isinstance(i, torch.Tensor) and not isinstance(i, torch._subclasses.FakeTensor) for i in inputs]
    return [mode.from_tensor(i, static_shapes=True) if r else i for i, r in zip(inputs, real)], mode


def _fold(module: torch.fx.GraphModule) -> None:
    """Numbers that the program wrote as tensors are numbers: they have no place in memory, and no device."""
    graph = module.graph
    for node in graph.find_nodes(op="get_attr"):
        held = getattr(module, str(node.target), None)
        if not isinstance(held, torch.Tensor) or isinstance(held, torch._subclasses.FakeTensor) or held.dim():
            continue
        for user in list(node.users):
            if user.target not in (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default):
                continue
            with graph.inserting_before(user):
                options = {"dtype": held.dtype, "device": user.meta["val"].device}
                number = graph.call_function(torch.ops.aten.full.default, ([], held.item()), options)
            number.meta = dict(user.meta)
            user.replace_all_uses_with(number)
            graph.erase_node(user)
    graph.eliminate_dead_code()


def _casts(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Autocast acts below the level that keeps composite operations whole."""
    kinds = {i.device.type for i in inputs if isinstance(i, torch.Tensor)}
    return any(torch.is_autocast_enabled(k) for k in kinds) or any(
        "autocast" in str(n.target) for n in module.graph.nodes
    )


def _forget_gradients(traced: torch.fx.GraphModule) -> None:
    """Where no gradients are recorded at all, it does not matter where they are switched off."""
    for node in list(traced.graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            traced.graph.erase_node(node)


def _transfer_names(traced: torch.fx.GraphModule, interpreter: _Named) -> None:
    origin = {}
    for node in traced.graph.nodes:
        found = (node.meta.get("from_node") or [None])[-1]
        origin[node.name] = getattr(found, "name", None)
    sources = {n.name: n for n in interpreter.module.graph.nodes}
    own = {n.name: n for n in traced.graph.nodes}
    for source, made in interpreter.made.items():
        node = own.get(made.name)
        if node is None:
            continue
        if source.op == "placeholder":
            node.meta["einloom_name"] = plain_name(source)
        elif source.op == "call_function" or source.op == "call_method":
            # A later view of the same values may have taken the name from the value itself: the first one keeps it.
            node.meta.setdefault("einloom_name", base_name(source.name))
            node.meta["einloom_named"] = assigned(source.name, source.meta.get("stack_trace"))
        if source.meta.get("stack_trace"):
            node.meta["stack_trace"] = source.meta["stack_trace"]
        node.meta["einloom_within"] = _within(source)
    for node in traced.graph.nodes:
        source = sources.get(origin[node.name] or "")
        if source is not None and source.meta.get("stack_trace"):
            node.meta.setdefault("stack_trace", source.meta["stack_trace"])
        node.meta.setdefault("einloom_name", base_name(node.name))


def _within(node: torch.fx.Node) -> str | None:
    """The function, or the class of the module, in which the user computes a value."""
    function = user_function(node.meta.get("stack_trace"))
    if function is not None:
        return function
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    if not modules:
        return None
    kind = modules[-1][1]
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def plain_name(node: torch.fx.Node) -> str:
    """`L_self_modules_blocks_modules_0_modules_norm_parameters_weight_` is `norm_weight`: the same in every layer, so
    that equal layers are one program."""
    name = re.sub(r"^L_(self_)?|_$", "", str(node.target))
    parts = [p.strip("_") for p in re.split(r"_?(?:modules|parameters|buffers)_", name)]
    named = [p for p in parts if p and not p.isdigit()]
    return "_".join(named[-2:]) or node.name


def assigned(name: str, trace: str | None) -> bool:
    """Whether the line of source that made a value assigns to a name like its own."""
    place = user_line(trace)
    left, equals, _ = (place[2] if place else "").partition("=")
    names = {part.strip(" ()*+-/@|&") for part in left.split(",")}
    return bool(equals) and base_name(name) in names


def base_name(name: str) -> str:
    """`scores_1`, a value that took the place of another, is `scores`."""
    return re.sub(r"(?<=\w)_\d+$", "", name)


def functionalise(module: torch.fx.GraphModule) -> None:
    """Writes `x.add_(y)` on a value that the graph itself made, and of which there is no view, as `x = x.add(y)`."""
    graph = module.graph
    for node in list(graph.nodes):
        other = _functional(node)
        if other is None or not _owned(node.args[0]):
            continue
        changed = node.args[0]
        with graph.inserting_before(node):
            new = graph.call_function(other, node.args, node.kwargs)
        new.meta = dict(node.meta)
        after = False
        for later in list(graph.nodes):
            if after:
                later.replace_input_with(changed, new)
                later.replace_input_with(node, new)
            after = after or later is node
        graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()


def _functional(node: torch.fx.Node) -> Any:
    """The overload without the underscore, if this is an in-place operation with one."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    name = target._schema.name.split("::")[1]
    packet = getattr(torch.ops.aten, name.rstrip("_"), None)
    return getattr(packet, target._overloadname, None) if name.endswith("_") and packet else None


def _owned(node: Any) -> bool:
    """Made by an operation that allocates, and seen by none that views."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return False
    return not any(_views(n) for n in [node, *node.users])


def _views(node: torch.fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return node.op == "call_function"
    returns = target._schema.returns
    aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    name = target._schema.name.split("::")[1]
    return aliases or name in (
        "reshape",
        "contiguous",
        "to",
        "flatten",
        "expand_as",
        "view_as",
        "reshape_as",
        "type_as",
    )


def simplify(module: torch.fx.GraphModule) -> None:
    """Leaves out conversions that convert nothing, and computes only once what is written several times."""
    graph = module.graph
    seen: dict[Any, torch.fx.Node] = {}
    for node in list(graph.nodes):
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            continue
        given = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if target.overloadpacket is torch.ops.aten.to and given is not None and _same_kind(given, node):
            node.replace_all_uses_with(given)
            graph.erase_node(node)
            continue
        key = (target, repr(node.args), repr(node.kwargs))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        else:
            seen[key] = node
    module.recompile()


def _same_kind(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    both = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    return both and x.dtype == y.dtype and x.device == y.device and not b.kwargs.get("copy", False)


def obstacle(module: torch.fx.GraphModule) -> tuple[torch.fx.Node, str] | None:
    """An operation around which nothing may be moved, and why, if one is left."""
    for node in module.graph.nodes:
        target = node.target
        if node.op != "call_function" or getattr(target, "__name__", "") == "getitem":
            continue
        if not isinstance(target, torch._ops.OpOverload):
            if target is torch._C._set_grad_enabled:
                return node, "a part of it records no gradients"
            return node, f"{getattr(target, '__name__', target)} is not an operation on tensors"
        if target._schema.is_mutable:
            return node, f"{target} writes to a tensor that others may see"
    return None
