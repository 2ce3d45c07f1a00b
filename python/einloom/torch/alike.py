"""Parts of a graph that are alike, as the layers of a model are: what was decided at one holds at the others.

How a region grows depends on the operations that are looked at while it does, on how they are connected, and on which of
them are taken. Where all of that is the same around another seed, the same number of nodes away from it, growing from
there would end in the same region, and need not be done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Collection, Iterable

import torch
from torch.fx import Node


@dataclass(frozen=True)
class Around:
    """What was looked at around a seed, by distance from it in the order of the graph, and which of it was taken."""

    seen: dict[int, Any]
    taken: frozenset[int]
    text: str


class Surroundings:
    """Describes what is around nodes of one graph. `free` are those that are made of positions alone, and belong to whoever
    reads them, however far away they stand; `is_open` says of a node whether a region could take it."""

    def __init__(self, nodes: Iterable[Node], free: Collection[Node], is_open: Callable[[Node], bool]) -> None:
        self.nodes = list(nodes)
        self.place = {n: k for k, n in enumerate(self.nodes)}
        self.free = free
        self.is_open = is_open
        self._written: dict[Node, str] = {}

    def around(self, seed: Node, seen: Iterable[Node], taken: Collection[Node], text: str) -> Around:
        """What became of a seed: a region took `taken`, all of which was open before, and its cascade is `text`."""
        base = self.place[seed]
        looked = {n for n in {*seen, *taken} if n not in self.free}
        described = {self.place[n] - base: self._described(n, base, n in taken or self.is_open(n)) for n in looked}
        return Around(described, frozenset(self.place[n] - base for n in taken), text)

    def taken_again(self, known: Around, seed: Node) -> set[Node] | None:
        """What a region from this seed takes, if everything around it is as it was there."""
        base = self.place[seed]
        if base + min(known.seen) < 0 or base + max(known.seen) >= len(self.nodes):
            return None
        for offset, wanted in known.seen.items():
            node = self.nodes[base + offset]
            if self._described(node, base, self.is_open(node)) != wanted:
                return None
        return {self.nodes[base + offset] for offset in known.taken}

    def _described(self, node: Node, base: int, is_open: bool) -> Any:
        arguments = torch.fx.map_arg((node.args, tuple(node.kwargs.items())), lambda n: self._reference(n, base))
        users = sorted(self.place[u] - base if u.op == "call_function" else 1 << 62 for u in node.users)
        return is_open, node.op, str(node.target), repr(arguments), tuple(users), _values(node)

    def _reference(self, node: Node, base: int) -> str:
        if node in self.free:
            return self._expression(node)
        # Weights stand at the beginning of the graph: what they are counts. Which is which, the text says.
        return str(self.place[node] - base) if node.op == "call_function" else f"{node.op} {_values(node)}"

    def _expression(self, node: Node) -> str:
        if node not in self._written:
            arguments = torch.fx.map_arg((node.args, tuple(node.kwargs.items())), self._expression)
            self._written[node] = f"{node.target}{arguments!r}"
        return self._written[node]


def _values(node: Node) -> tuple[Any, ...]:
    vals = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return tuple(
        (v.dtype, tuple(v.shape), v.stride(), v.device) if isinstance(v, torch.Tensor) else repr(v) for v in vals
    )
