"""Recurrences on the reference path: position by position, as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import torch
from torch import Tensor

from ..errors import GradientError
from .language import Apply, Definition, Element, Expr, Fold, Literal, Name, Program

if TYPE_CHECKING:
    from .reference import Evaluation, Named


def reads(e: Expr) -> Iterator[str]:
    """Every name in an expression."""
    if isinstance(e, Name):
        yield e.text
    elif isinstance(e, Element):
        yield e.tensor
        for i in e.at:
            yield from reads(i)
    elif isinstance(e, Apply):
        for a in e.args:
            yield from reads(a)
    elif isinstance(e, Fold):
        yield from reads(e.body)
        if e.filter is not None:
            yield from reads(e.filter)


def iterated(statement: Definition) -> int | None:
    """The dimension in which a statement defines the next position, `t + 1`."""
    return next((k for k, i in enumerate(statement.at) if isinstance(i, Apply)), None)


def circles(program: Program) -> list[set[str]]:
    """Tensors that need each other: each set holds one recurrence."""
    needs: dict[str, set[str]] = {}
    for s in program.statements:
        needs.setdefault(s.name, set()).update(reads(s.value))
    everything = {name: _reach(name, needs) for name in needs}
    found: list[set[str]] = []
    for s in program.statements:
        if iterated(s) is not None and not any(s.name in c for c in found):
            found.append({s.name} | {n for n in everything[s.name] if n in needs and s.name in everything[n]})
    return found


def _reach(name: str, needs: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [name]
    while todo:
        for other in needs.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


class Recurrence:
    """The tensors of one recurrence, slice by slice."""

    def __init__(self, evaluation: Evaluation, members: set[str]) -> None:
        self.evaluation = evaluation
        program = evaluation.program
        self.statements = {n: [s for s in program.statements if s.name == n] for n in members}
        step = next(s for group in self.statements.values() for s in group if iterated(s) is not None)
        moving = step.at[iterated(step) or 0]
        self.rank = program.rank(next(n for n in reads(moving)))
        self.places = {n: self._place(n) for n in members}
        self.slices: dict[str, dict[int, Tensor]] = {n: {} for n in members}

    def _place(self, name: str) -> int:
        """The dimension along which a member goes on."""
        for s in self.statements[name]:
            place = iterated(s)
            if place is not None:
                return place
        (only,) = self.statements[name]
        along = [k for k, i in enumerate(only.at) if isinstance(i, Name) and self._rank(i.text) == self.rank]
        if len(along) != 1:
            raise GradientError(
                f"{name}: its place in a recurrence has no reference path, so that it has no gradient yet"
            )
        return along[0]

    def _rank(self, index: str) -> str:
        return self.evaluation.program.rank(index)

    def run(self) -> dict[str, Tensor]:
        """The whole tensors."""
        count = self.evaluation.sizes[self.rank]
        out = {}
        for name, place in self.places.items():
            grows = any(iterated(s) is not None for s in self.statements[name])
            slices = [self.slice(name, k) for k in range(count + 1 if grows else count)]
            out[name] = torch.stack(slices, place)
        return out

    def slice(self, name: str, k: int) -> Tensor:
        """One position of a member, with what it needs of the others."""
        if k not in self.slices[name]:
            place = self.places[name]
            for s in self.statements[name]:
                at = s.at[place]
                first = isinstance(at, Literal) and int(at.value) == k
                next_one = isinstance(at, Apply) and k > 0
                if first or next_one or isinstance(at, Name):
                    index = next((n for n in reads(at)), "")
                    self.slices[name][k] = self._value(s, place, index, k - 1 if next_one else k)
                    break
        return self.slices[name][k]

    def _value(self, s: Definition, place: int, index: str, position: int) -> Tensor:
        e = self.evaluation
        fixed, e.fixed = e.fixed, {**e.fixed, index: position}
        try:
            rest = [i.text for k, i in enumerate(s.at) if k != place and isinstance(i, Name)]
            data = e.value(s.value).over(rest)
            return e.rounded(s, data.expand([e.sizes[self._rank(n)] for n in rest]))
        finally:
            e.fixed = fixed

    def element(self, e: Element) -> Named:
        """A member's element while the recurrence runs: at one position, the present or an earlier one."""
        place = self.places[e.tensor]
        at = self.evaluation.position(e.at[place])
        if at.names:
            raise GradientError(f"{e.tensor} is read along its recurrence, which has no reference path yet")
        data = self.slice(e.tensor, int(at.data))
        return self.evaluation.element_of(data, [i for k, i in enumerate(e.at) if k != place])
