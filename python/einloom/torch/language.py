"""Reads a cascade in its canonical form: sugar expanded, ops inlined, everything declared (`einloom … --dump=cascade`).

The Rust parser has checked the text; this reader only rebuilds its structure for the reference path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Union

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(<=|>=|==|!=|[-+*/^<>=()\[\],:]))")
_LEVELS = ({"or"}, {"and"}, {"not"}, {"==", "!=", "<", "<=", ">", ">="}, {"+", "-"}, {"*", "/"})
_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "argmax", "argmin"})


@dataclass(frozen=True)
class Literal:
    """A number."""

    value: float


@dataclass(frozen=True)
class Name:
    """An index, a rank, a parameter, or a tensor without dimensions."""

    text: str


@dataclass(frozen=True)
class Element:
    """`X[…]`."""

    tensor: str
    at: tuple[Expr, ...]


@dataclass(frozen=True)
class Apply:
    """An operator or a function."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Fold:
    """A reduction."""

    op: str
    over: tuple[str, ...]
    filter: Union[Expr, None]
    body: Expr


Expr = Union[Literal, Name, Element, Apply, Fold]


@dataclass(frozen=True)
class Declared:
    """An input or output: its indices (none for outputs) and number type."""

    name: str
    indices: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class Definition:
    """`name[at]: dtype = value`."""

    name: str
    at: tuple[Expr, ...]
    dtype: Union[str, None]
    value: Expr


@dataclass
class Program:
    """A cascade's declarations and statements."""

    inputs: list[Declared] = field(default_factory=list)
    outputs: list[Declared] = field(default_factory=list)
    sizes: dict[str, Expr] = field(default_factory=dict)
    ranks: dict[str, str] = field(default_factory=dict)
    params: dict[str, float] = field(default_factory=dict)
    statements: list[Definition] = field(default_factory=list)
    monoids: set[str] = field(default_factory=set)

    def rank(self, index: str) -> str:
        """The rank that an index runs over."""
        return self.ranks.get(index, index.upper())


class _Reader:
    def __init__(self, line: str) -> None:
        self.tokens = [m.group(m.lastindex or 0) for m in _TOKEN.finditer(line)]
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def eat(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expression(self, level: int = 0) -> Expr:
        if level == len(_LEVELS):
            return self.signed()
        if level == 2:
            return Apply("not", (self.expression(2),)) if self.eat("not") else self.expression(3)
        left = self.expression(level + 1)
        while self.peek() in _LEVELS[level]:
            op = self.take()
            left = Apply(op, (left, self.expression(level + 1)))
        return left

    def signed(self) -> Expr:
        if self.eat("-"):
            return Apply("-", (self.signed(),))
        base = self.atom()
        return Apply("^", (base, self.signed())) if self.eat("^") else base

    def atom(self) -> Expr:
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.eat(")")
            return inner
        if token[0].isdigit():
            return Literal(float(token))
        if token == "reduce" or token in _REDUCTIONS and self._reduces():
            return self.fold(self.take() if token == "reduce" else token)
        if self.peek() == "(":
            return Apply(token, self.items("(", ")"))
        if self.peek() == "[":
            return Element(token, self.items("[", "]"))
        return Name(token)

    def _reduces(self) -> bool:
        """`max(n) x` and `max(n: c) x` reduce, `max(a, b)` does not."""
        place = 1
        while re.match(r"[a-z_]\w*$", self.peek(place)):
            if self.peek(place + 1) == ",":
                place += 2
                continue
            after = self.peek(place + 2)
            ends = self.peek(place + 1) == ")" and bool(re.match(r"[\w(]", after)) and after not in ("and", "or")
            return self.peek(place + 1) == ":" or ends
        return False

    def fold(self, op: str) -> Expr:
        self.eat("(")
        over = [self.take()]
        while self.eat(","):
            over.append(self.take())
        condition = self.expression() if self.eat(":") else None
        self.eat(")")
        return Fold(op, tuple(over), condition, self.expression(5))

    def items(self, opened: str, closed: str) -> tuple[Expr, ...]:
        self.eat(opened)
        out = []
        while not self.eat(closed):
            out.append(self.expression())
            self.eat(",")
        return tuple(out)

    def declared(self) -> list[Declared]:
        out: list[tuple[str, tuple[str, ...], str]] = []
        while self.peek():
            name = self.take()
            at = self.items("[", "]") if self.peek() == "[" else ()
            kind = self.take() if self.eat(":") else ""
            out.append((name, tuple(i.text for i in at if isinstance(i, Name)), kind))
            self.eat(",")
        kinds = [k for _, _, k in out]
        return [Declared(n, i, k or next(x for x in kinds[place:] if x)) for place, (n, i, k) in enumerate(out)]


def _lines(text: str) -> list[str]:
    """Logical lines: one goes on after a comma or an operator, and inside brackets."""
    out: list[str] = []
    for raw in text.splitlines():
        line = raw.partition("#")[0].rstrip()
        last = out[-1].rstrip() if out else ""
        goes_on = last and (last[-1] in ",+-*/^<>=([:" or last.split()[-1] in ("and", "or", "not"))
        if goes_on or last.count("(") + last.count("[") > last.count(")") + last.count("]"):
            out[-1] += " " + line
        elif line.strip():
            out.append(line)
    return out


def read(text: str) -> Program:
    """The structure of a canonical text."""
    program = Program()
    for line in _lines(text):
        reader = _Reader(line)
        word = reader.peek() if re.match(r"[A-Za-z_]\w*$", reader.peek(1)) else ""
        if word in ("cascade", "op"):
            continue
        if word in ("input", "output"):
            reader.take()
            (program.inputs if word == "input" else program.outputs).extend(reader.declared())
        elif word == "monoid":
            program.monoids.add(reader.peek(1))
        elif word in ("rank", "param"):
            _sized(reader, program, word)
        elif word == "index":
            reader.take()
            names = [reader.take()]
            while reader.eat(","):
                names.append(reader.take())
            reader.take()
            rank = reader.take()
            program.ranks.update(dict.fromkeys(names, rank))
        else:
            program.statements.append(_definition(reader))
    return program


def _sized(reader: _Reader, program: Program, word: str) -> None:
    reader.take()
    name = reader.take()
    if not reader.eat("="):
        return
    value = reader.expression()
    if word == "rank":
        program.sizes[name] = value
    else:
        program.params[name] = _number(value)


def _number(e: Expr) -> float:
    if isinstance(e, Literal):
        return e.value
    if isinstance(e, Apply) and e.op == "-":
        return -_number(e.args[0])
    return float("inf") if isinstance(e, Name) and e.text == "inf" else 3.141592653589793


def _definition(reader: _Reader) -> Definition:
    name = reader.take()
    at = reader.items("[", "]") if reader.peek() == "[" else ()
    dtype = reader.take() if reader.eat(":") else None
    reader.eat("=")
    return Definition(name, at, dtype, reader.expression())
