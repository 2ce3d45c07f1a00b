"""Positions: affine forms over axes, with floor divisions and gathers, as the language has inside brackets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Iterator, Mapping, Union

if TYPE_CHECKING:
    from .terms import Tensor


class Rank:
    """Dimensions that are known to have one size, because an operation runs along all of them at once."""

    __slots__ = ("size", "hints", "_parent")

    def __init__(self, size: int, hints: tuple[str, ...] = ()) -> None:
        self.size = size
        self.hints = list(hints)
        self._parent: Rank | None = None

    def root(self) -> Rank:
        """The rank that stands for all that were found to be the same."""
        rank = self
        while rank._parent is not None:
            rank = rank._parent
        return rank

    def unite(self, other: Rank) -> None:
        """Makes both the same rank. The sizes must agree."""
        a, b = self.root(), other.root()
        if a is b:
            return
        assert a.size == b.size, (a.size, b.size)
        b._parent = a
        a.hints += [h for h in b.hints if h not in a.hints]


class Axis:
    """An index variable over a rank; two axes may run over the same rank independently."""

    __slots__ = ("_rank", "hint")

    def __init__(self, rank: Rank, hint: str | None = None) -> None:
        self._rank = rank
        self.hint = hint

    @property
    def rank(self) -> Rank:
        """What it runs over."""
        return self._rank.root()

    @property
    def size(self) -> int:
        """The number of its positions."""
        return self._rank.root().size


@dataclass(frozen=True)
class Floor:
    """`numerator / denominator`, rounded down."""

    numerator: Index
    denominator: int


@dataclass(frozen=True)
class Gather:
    """The element of an integer tensor."""

    tensor: Tensor
    at: tuple[Index, ...]


Atom = Union[Axis, Floor, Gather]


@dataclass(frozen=True)
class Index:
    """`Σ coefficient · atom + offset`, in a canonical form: atoms differ and no coefficient is 0."""

    terms: tuple[tuple[Atom, int], ...] = ()
    offset: int = 0

    @staticmethod
    def of(axis: Axis) -> Index:
        """The position of one axis."""
        return Index(((axis, 1),))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.offset + other)
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
        return Index(tuple((a, c) for a, c in terms.items() if c), self.offset + other.offset)

    def __sub__(self, other: Index) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.offset * factor)

    def bounds(self) -> tuple[int, int] | None:
        """The least and largest position; `None` where a tensor's elements decide."""
        low = high = self.offset
        for atom, c in self.terms:
            if isinstance(atom, Axis):
                reach: tuple[int, int] | None = (0, atom.size - 1)
            elif isinstance(atom, Floor):
                reach = atom.numerator.bounds()
                reach = reach and (reach[0] // atom.denominator, reach[1] // atom.denominator)
            else:
                reach = None
            if reach is None:
                return None
            ends = sorted((c * reach[0], c * reach[1]))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def __floordiv__(self, divisor: int) -> Index:
        """What is a multiple of the divisor leaves the division; what is left vanishes if it is below the divisor."""
        whole = Index(tuple((a, c // divisor) for a, c in self.terms if c % divisor == 0), self.offset // divisor)
        part = Index(tuple((a, c) for a, c in self.terms if c % divisor), self.offset % divisor)
        reach = part.bounds()
        if reach is not None and reach[0] // divisor == reach[1] // divisor:
            return whole + reach[0] // divisor
        return whole + Index(((Floor(part, divisor), 1),))

    def __mod__(self, divisor: int) -> Index:
        return self - (self // divisor) * divisor

    def substitute(self, by: Mapping[Axis, Index]) -> Index:
        """With other positions in place of axes."""
        out = Index((), self.offset)
        for atom, c in self.terms:
            if isinstance(atom, Axis):
                out += by.get(atom, Index.of(atom)) * c
            elif isinstance(atom, Floor):
                out += (atom.numerator.substitute(by) // atom.denominator) * c
            else:
                at = tuple(i.substitute(by) for i in atom.at)
                out += Index(((Gather(atom.tensor, at), c),))
        return out

    def axis(self) -> Axis | None:
        """The axis, if it is nothing but one."""
        if self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            return atom if isinstance(atom, Axis) else None
        return None

    def axes(self) -> Iterator[Axis]:
        """All axes in it."""
        for atom, _ in self.terms:
            if isinstance(atom, Axis):
                yield atom
            elif isinstance(atom, Floor):
                yield from atom.numerator.axes()
            else:
                for i in atom.at:
                    yield from i.axes()

    def gathers(self) -> Iterator[Gather]:
        """All gathers in it."""
        for atom, _ in self.terms:
            if isinstance(atom, Gather):
                yield atom
                for i in atom.at:
                    yield from i.gathers()
            elif isinstance(atom, Floor):
                yield from atom.numerator.gathers()

    def text(self, name: Callable[[Axis], str]) -> str:
        """As inside brackets."""
        out = ""
        for atom, c in sorted(self.terms, key=lambda t: t[1] < 0):
            if isinstance(atom, Axis):
                body = name(atom)
            elif isinstance(atom, Floor):
                inner = atom.numerator.text(name)
                body = f"{inner if atom.numerator.axis() else f'({inner})'} / {atom.denominator}"
                body = body if len(self.terms) == 1 and c == 1 and not self.offset else f"({body})"
            else:
                body = atom.tensor.read_text(atom.at, name)
            factor = "" if abs(c) == 1 else f"*{self._size(atom, abs(c), name)}"
            sign = ("-" if c < 0 else "") if not out else (" - " if c < 0 else " + ")
            out += f"{sign}{body}{factor}"
        if self.offset or not out:
            out += (f" + {self.offset}" if self.offset > 0 else f" - {-self.offset}") if out else str(self.offset)
        return out

    def _size(self, outer: Atom, coefficient: int, name: Callable[[Axis], str]) -> str:
        """A stride is said as the size of the rank that runs inside it, where there is one."""
        for atom, c in self.terms if isinstance(outer, Axis) else ():
            if atom is not outer and isinstance(atom, Axis) and c == 1 and atom.size == coefficient > 1:
                size = getattr(name, "size", None)
                return size(atom) if size else str(coefficient)
        return str(coefficient)
