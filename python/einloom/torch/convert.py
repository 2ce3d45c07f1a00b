"""From a graph of ATen operations to a cascade.

Every operation becomes a term over axes; views become index maps; reductions, what the user named, and what is used
more than once become statements. No operation is recognised by its surroundings: each is written as its definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Sequence, TypeVar

import torch

from .errors import NotConvertible, place_of
from .index import Axis, Index, Rank
from .ranges import TooLarge, limit
from .terms import Binary, NotANumber, Read, Reduce, Statement, Tensor, Term, positions_only, reads, reduces
from .text import cascade_text, identifier
from .values import Value, fuse, is_simple

NUMBER_TYPES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int64: "i32",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b1",
}
"""PyTorch's number types in the language. It has no 64-bit integers: they are taken as i32, and a call refuses values that do not fit."""

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
"""The rule of every operation that has one, by overload packet."""


AnyRule = TypeVar("AnyRule", bound=Rule)


def rule(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Registers the definition of ATen operations. Its arguments are those of the operation's schema, after the
    converter itself."""

    def register(f: AnyRule) -> AnyRule:
        for name in names:
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None:
                RULES[packet] = f
        return f

    return register


class Unsupported(Exception):
    """Raised by rules; the converter adds the operation and its place."""


@dataclass(frozen=True)
class Cascade:
    """A cascade made from a graph."""

    text: str
    inputs: tuple[str, ...]
    """Names of the inputs, in the order of the graph's placeholders that are read."""
    placeholders: tuple[torch.fx.Node, ...]
    """The placeholders (or values from elsewhere) that they stand for."""
    outputs: tuple[str, ...]
    output_dtypes: tuple[torch.dtype, ...]
    output_sizes: tuple[tuple[Any, ...], ...]
    """Every output's sizes: a number, or the input and its dimension that have the same rank."""
    sizes: dict[str, int]
    """The size of every rank by its name."""
    flattened: bool
    """Whether some output's dimension is made of several, so that its elements are computed by dividing positions."""
    limit: int | None = None
    """The largest magnitude that its integers may have, if that is less than what 32 bits hold."""


@dataclass
class Converter:
    """The state of one conversion."""

    name: str = "cascade"
    inputs: list[Tensor] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)
    node: torch.fx.Node | None = None
    taken: set[str] = field(default_factory=set)
    flattened: bool = False

    def __post_init__(self) -> None:
        from . import rules  # noqa: F401  (registers the definitions)

    # ---- what rules use

    def refuse(self, reason: str) -> NoReturn:
        """Stops: the operation at hand cannot be taken."""
        raise Unsupported(reason)

    @property
    def result_dtype(self) -> torch.dtype:
        """PyTorch's number type of the operation at hand."""
        assert self.node is not None, "rules run for a node"
        meta = self.node.meta["val"]
        return (meta[0] if isinstance(meta, (tuple, list)) else meta).dtype

    def named(self, v: Value, wanted: str | None = None) -> Value:
        """The value as the tensor of a statement, unless it is as good as one."""
        if is_simple(v.term) or positions_only(v.term):
            return v
        return self.define(v, wanted or v.alias or (self.node.meta.get("einloom_name") if self.node else None) or "t")

    def define(self, v: Value, wanted: str, dtype: torch.dtype | None = None, whole: bool = False) -> Value:
        """Adds a statement, with one dimension per axis, or per dimension of the value (`whole`)."""
        if whole:
            v = fuse(v)
        axes = v.axes
        kind = NUMBER_TYPES[dtype or v.dtype]
        if dtype is None and kind in ("f32", "bf16", "f16", "e4m3", "e5m2"):
            kind = ""  # intermediates are f32, as in every fused kernel
        tensor = Tensor(self.fresh(wanted), axes, kind or None)
        self.statements.append(Statement(tensor, v.term))
        # Readers get axes of their own: the statement's stay free of later substitutions.
        return Value(v.dims, Read(tensor, tuple(Index.of(a) for a in axes)), v.dtype)

    def fresh(self, wanted: str) -> str:
        """A name that no tensor bears."""
        name = base = identifier(wanted)
        number = 2
        while name in self.taken:
            name, number = f"{base}_{number}", number + 1
        self.taken.add(name)
        return name

    def body(self, v: Value) -> Value:
        """A value for use inside a reduction: a reduction in there becomes a statement of its own."""
        return self.named(v) if reduces(v.term) else v

    # ---- the walk

    def input(self, node: torch.fx.Node, wanted: str) -> Value:
        """A tensor from outside."""
        meta = node.meta["val"]
        if not isinstance(meta, torch.Tensor):
            raise NotConvertible(str(node), f"a {type(meta).__name__} is no tensor", place_of(node))
        if any(not isinstance(n, int) for n in meta.shape):
            raise NotConvertible(
                str(node), f"its shape {tuple(meta.shape)} has sizes that are not known", place_of(node)
            )
        if meta.dtype not in NUMBER_TYPES:
            raise NotConvertible(str(node), f"there is no number type for {meta.dtype}", place_of(node))
        axes = tuple(Axis(Rank(int(n))) for n in meta.shape)
        tensor = Tensor(self.fresh(wanted), axes, NUMBER_TYPES[meta.dtype])
        self.inputs.append(tensor)
        return Value(tuple((a,) for a in axes), Read(tensor, tuple(Index.of(a) for a in axes)), meta.dtype)

    def argument(self, arg: Any) -> Any:
        """An operation's argument: nodes as values, the rest as it is."""
        if isinstance(arg, torch.fx.Node):
            return self.values[arg]
        if isinstance(arg, (list, tuple)):
            return type(arg)(self.argument(a) for a in arg)
        return arg

    def call(self, node: torch.fx.Node) -> None:
        """One operation."""
        self.node = node
        target = node.target
        try:
            if getattr(target, "__name__", "") == "getitem":
                self.values[node] = self.values[node.args[0]][node.args[1]]
                return
            self.values[node] = self._apply(target, node)
        except (Unsupported, NotANumber) as e:
            raise NotConvertible(str(target), str(e), place_of(node)) from None
        self._name(node)

    def _apply(self, target: Any, node: torch.fx.Node) -> Any:
        packet = getattr(target, "overloadpacket", None)
        found = RULES.get(packet)
        if found is None:
            from .decompose import decomposed

            return decomposed(self, node)
        args = [self.argument(a) for a in node.args]
        kwargs = {k: self.argument(a) for k, a in node.kwargs.items()}
        return found(self, *args, **kwargs)

    def _name(self, node: torch.fx.Node) -> None:
        """Makes the value a statement where that is worth a line: the user named it, or it is used again."""
        v = self.values[node]
        if not isinstance(v, Value):
            return
        wanted = node.meta.get("einloom_name") or node.name
        is_view = is_simple(v.term) or positions_only(v.term)
        if is_view:
            return
        users = [u for u in node.users if u.op != "output"]
        if node.meta.get("einloom_named") or len(users) > 1:
            if any(u.op == "output" for u in node.users) and not users:
                self.values[node] = Value(v.dims, v.term, v.dtype, wanted)
                return  # the output's own statement will bear the name
            self.values[node] = self.define(v, wanted)
        else:
            self.values[node] = Value(v.dims, v.term, v.dtype, wanted)


def convert(
    name: str,
    placeholders: Sequence[torch.fx.Node],
    nodes: Sequence[torch.fx.Node],
    results: Sequence[torch.fx.Node],
    input_names: dict[torch.fx.Node, str] | None = None,
    comment: str = "",
) -> Cascade:
    """The cascade of a part of a graph, from `placeholders` through `nodes` (in order) to `results`.

    Raises `NotConvertible` at the first operation that has no definition here.
    """
    converter = Converter(name)
    wanted = input_names or {}
    for node in placeholders:
        converter.values[node] = converter.input(node, wanted.get(node) or node.meta.get("einloom_name") or node.name)
    for node in nodes:
        converter.call(node)
    outputs: list[Tensor] = []
    for node in results:
        outputs.append(_output(converter, node, outputs))
    return _finish(converter, placeholders, results, outputs, comment)


def _output(converter: Converter, node: torch.fx.Node, taken: list[Tensor]) -> Tensor:
    """The statement that computes a result, in the result's own shape and number type."""
    v = converter.values[node]
    if not isinstance(v, Value):
        raise NotConvertible(str(node.target), "a result is not a tensor", place_of(node))
    dtype = node.meta["val"].dtype
    if dtype not in NUMBER_TYPES:
        raise NotConvertible(str(node.target), f"there is no number type for {dtype}", place_of(node))
    for statement in (s for s in converter.statements if s.tensor not in taken):
        whole = Read(statement.tensor, tuple(Index.of(a) for a in statement.tensor.axes))
        if v.term == whole and all(len(d) == 1 for d in v.dims) and v.axes == statement.tensor.axes:
            statement.tensor.dtype = NUMBER_TYPES[dtype]
            return statement.tensor
    wanted = v.alias or node.meta.get("einloom_name") or node.name
    converter.flattened |= any(len(d) > 1 for d in v.dims)
    read = converter.define(v, wanted, dtype=dtype, whole=True)
    assert isinstance(read.term, Read)
    return read.term.tensor


def _finish(
    converter: Converter,
    placeholders: Sequence[torch.fx.Node],
    results: Sequence[torch.fx.Node],
    outputs: list[Tensor],
    comment: str,
) -> Cascade:
    statements = _needed(converter.statements, outputs)
    used = {t for s in statements for t in _reads(s.term)}
    inputs = [(t, p) for t, p in zip(converter.inputs, placeholders) if t in used]
    try:
        largest = limit([t for t, _ in inputs], statements)
    except TooLarge:
        first = next((r for r in results if not r.meta["val"].dtype.is_floating_point), results[0])
        reason = "it computes integers that may not fit into their number type, of which the widest has 32 bits"
        raise NotConvertible(str(first.target), reason, place_of(first)) from None
    text, sizes = cascade_text(converter.name, [t for t, _ in inputs], statements, outputs, comment)
    ranks = {a.rank: (k, d) for k, (t, _) in reversed(list(enumerate(inputs))) for d, a in enumerate(t.axes)}
    return Cascade(
        text,
        tuple(t.name for t, _ in inputs),
        tuple(p for _, p in inputs),
        tuple(t.name for t in outputs),
        tuple(r.meta["val"].dtype for r in results),
        tuple(tuple(ranks.get(a.rank, a.size) for a in t.axes) for t in outputs),
        sizes,
        converter.flattened,
        largest,
    )


def is_contraction(term: Term) -> bool:
    """A sum of products of elements of two tensors or more, perhaps scaled or with something added."""
    if isinstance(term, Reduce):
        return term.name == "sum" and term.filter is None and _product(term.body) >= 2
    if isinstance(term, Binary) and term.op in ("+", "*", "/"):
        parts = [t for t in (term.a, term.b) if reduces(t)]
        others = [t for t in (term.a, term.b) if not reduces(t)]
        return all(is_contraction(t) for t in parts) and all(is_simple(t) for t in others)
    return False


def _product(term: Term) -> int:
    """The number of tensors multiplied; 0 if it is anything else than a product."""
    if isinstance(term, Read):
        return 1
    if isinstance(term, Binary) and term.op == "*":
        a, b = _product(term.a), _product(term.b)
        return a + b if a and b else 0
    return 0


def _reads(term: Term) -> set[Tensor]:
    return set(reads(term))


def _needed(statements: list[Statement], outputs: list[Tensor]) -> list[Statement]:
    """Statements that an output depends on."""
    needed = set(outputs)
    kept = []
    for statement in reversed(statements):
        if statement.tensor in needed:
            kept.append(statement)
            needed |= _reads(statement.term)
    return kept[::-1]
