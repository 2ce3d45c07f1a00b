"""Which parts of a graph become cascades.

The rule, in one place. Operations that are made of positions alone (masks) belong to whatever reads them. A region
starts at a reduction that is more than a sum of products (a softmax, a norm, a loss), and takes in a neighbour where
that lowers the bytes that all parts of the graph together read from and write to memory, provided the planner computes
the region as it grows without giving the neighbour a kernel of its own. A sum of products joins only where the bytes that
this spares take longer than the time that the product loses outside of the library that multiplies matrices best. So the
scores of attention join the softmax that reads them, because they are many more than what they are computed from, and a
projection stays with the library. A region is taken if its kernels move fewer bytes than its operations would one by one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Callable, Sequence

import torch
from torch.fx import Node

from ..errors import EinloomError
from ..report import Plan
from .alike import Around, Surroundings
from .convert import Cascade, convert
from .errors import NotConvertible, place_of
from .graphs import Kind, in_order, kind_of, moves_nothing, operations, tensor_bytes
from .kernels import Planner


SLOWER = 1.26
"""The time of a product inside a kernel in that of the same product in a library, at least: bare products ran in 1.26 and 1.39
of MKL's time (two cores with AVX-512, f32, 512 by 768 by 2304 and 5000), those with a norm in 1.5 to 2.2."""

LOST = 1 - 1 / SLOWER
"""The share of a product's time in a kernel that the library would spare, taken of its time at the machine's full rate: as
little as can be lost, so that a product is left to the library only where it is better there by any measure. On an H200
bare products run in 0.94 to 1.01 of cuBLAS' time (docs/gpu-log.md), those inside a kernel have not been compared: there
it is an assumption."""


@dataclass(eq=False)
class Region:
    """A part of a graph that becomes one cascade."""

    nodes: set[Node]
    cascade: Cascade | None = None
    plan: Plan | None = None
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)

    @property
    def kernels(self) -> int:
        """The number of kernels that it is planned as."""
        return len(self.plan.kernels) if self.plan else 0

    @property
    def flops(self) -> float:
        """Operations of its kernels."""
        return self.plan.flops if self.plan else 0.0


@dataclass(frozen=True)
class Refusal:
    """Something that was left to the default compiler."""

    what: str
    reason: str
    place: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}" + (f" ({self.place})" if self.place else "")


@dataclass
class Partition:
    """A graph's regions, and what was refused."""

    regions: list[Region]
    refusals: list[Refusal]


class Partitioner:
    """Grows regions in one graph."""

    def __init__(self, module: torch.fx.GraphModule, planner: Planner) -> None:
        self.module = module
        self.planner = planner
        self.nodes = operations(module)
        self.place = {n: k for k, n in enumerate(module.graph.nodes)}
        self.kinds: dict[Node, Kind] = {n: kind_of(n) for n in self.nodes}
        self.free = self._free()
        self.region_of: dict[Node, Region] = {}
        self._surroundings = Surroundings(module.graph.nodes, self.free, self._could_join)
        self._grown_before: list[Around] = []
        self._seen: set[Node] = set()
        self._refused: defaultdict[Region, set[frozenset[Node]]] = defaultdict(set)
        self.refusals: list[Refusal] = [
            Refusal(str(n.target), k.refused.reason, k.refused.place) for n, k in self.kinds.items() if k.refused
        ]

    def run(self) -> Partition:
        """All regions."""
        for seed in self.nodes:
            kind = self.kinds[seed]
            if kind.reduction and not kind.contraction and seed not in self.region_of and seed not in self.free:
                self._grow(seed)
        regions = sorted(set(self.region_of.values()), key=lambda r: min(self.place[n] for n in r.nodes))
        kept = [r for r in regions if self._pays(r)]
        for node in self.nodes:
            kind = self.kinds[node]
            if kind.contraction and node not in self.region_of:
                reason = "a product is left to the library: in no region beside it would it spare more time than it loses"
                self.refusals.append(Refusal(str(node.target), reason, place_of(node)))
        return Partition(kept, self.refusals)

    # ---- growing

    def _grow(self, seed: Node) -> None:
        if self._again(seed):
            return
        self._seen.clear()
        for careful in (False, True):
            region = Region(set(self._closed([seed])))
            reason = self._convert(region) or self._plan(region)
            if reason is None:
                self._claim(region)
                while self._grown(region, careful):
                    # A result that got a kernel of its own has none once all that reads it is here.
                    self._refused.pop(region, None)
                most = region.kernels
                reason = self._plan(region) or self._check(region)
            if reason is None and (careful or region.kernels <= most):
                self._remember(seed, region)
                return
            for n in region.nodes:
                self.region_of.pop(n, None)
        self.refusals.append(Refusal(str(seed.target), reason or "", place_of(seed)))

    def _again(self, seed: Node) -> bool:
        """Takes what an earlier seed took, where everything around this one is the same."""
        for known in self._grown_before:
            nodes = self._surroundings.taken_again(known, seed)
            if nodes is None:
                continue
            region = Region(nodes)
            if self._convert(region) or region.cascade is None or region.cascade.text != known.text:
                continue
            if self._plan(region) is None and self._acyclic(region):
                self._claim(region)
                return True
        return False

    def _remember(self, seed: Node, region: Region) -> None:
        assert region.cascade is not None
        self._grown_before.append(self._surroundings.around(seed, self._seen, region.nodes, region.cascade.text))

    def _grown(self, region: Region, careful: bool) -> bool:
        """Takes all the steps there are; whether there was one."""
        any_step = False
        while any(self._join(region, step, careful) for step in self._neighbours(region)):
            any_step = True
        return any_step

    def _claim(self, region: Region) -> None:
        for n in region.nodes:
            self.region_of[n] = region

    def _neighbours(self, region: Region) -> list[frozenset[Node]]:
        """What could join next: an operation beside the region, with the views between."""
        found: dict[frozenset[Node], None] = {}
        for node in sorted(region.nodes, key=self.place.__getitem__):
            for given in node.all_input_nodes:
                self._towards(given, lambda n: n.all_input_nodes, found)
            for user in node.users:
                self._towards(user, lambda n: list(n.users), found)
        return list(found)

    def _towards(
        self, node: Node, onwards: Callable[[Node], list[Node]], found: dict[frozenset[Node], None]
    ) -> None:
        chain: list[Node] = []
        while True:
            if node in self.kinds:
                self._seen.add(node)
            if not self._could_join(node):
                return
            chain.append(node)
            if not self.kinds[node].view and not moves_nothing(node):
                found[self._closed(chain)] = None
                return
            if not moves_nothing(node) or self._before_copy(node):
                found[frozenset(chain)] = None
            following = [n for n in onwards(node) if n not in self.free and n.op != "output"]
            if len(following) != 1:
                return
            node = following[0]

    def _closed(self, chain: Sequence[Node]) -> frozenset[Node]:
        """With the getitem nodes that take an operation's several results apart."""
        whole = set(chain)
        for n in chain:
            if isinstance(n.meta.get("val"), (tuple, list)):
                whole |= set(n.users)
        return frozenset(whole)

    def _before_copy(self, node: Node) -> bool:
        """A transposition whose result is copied next: written in that order at once, there is nothing to copy."""
        return len(node.users) == 1 and not moves_nothing(next(iter(node.users)))

    def _could_join(self, node: Node) -> bool:
        kind = self.kinds.get(node)
        return kind is not None and not kind.refused and node not in self.free and node not in self.region_of

    def _join(self, region: Region, step: frozenset[Node], careful: bool) -> bool:
        """Takes a step if it spares bytes and no kernel of its own comes with it. Only reductions can bring one, so the
        planner is asked for those, and for everything where `careful`."""
        if step in self._refused[region]:
            return False
        before = self._bytes(region.nodes) + sum(self._alone(n) for n in step)
        grown = Region(region.nodes | step)
        gain = before - self._bytes(grown.nodes)
        copies = any(self._before_copy(n) for n in step)
        if gain < 0 or gain == 0 and not copies or not self._acyclic(grown):
            return False
        failed = self._convert(grown) is not None or grown.cascade is None or grown.cascade.flattened
        grown.plan = region.plan
        if not failed and (careful or any(self.kinds[n].reduction for n in step)):
            failed = self._plan(grown) is not None or grown.kernels > region.kernels
            failed = failed or any(self.kinds[n].contraction for n in step) and not self._worth(region, grown, gain)
        if failed:
            # What was refused stays refused: a larger region is harder.
            self._refused[region].add(step)
            return False
        region.nodes, region.cascade, region.plan = grown.nodes, grown.cascade, grown.plan
        region.inputs, region.outputs = grown.inputs, grown.outputs
        self._claim(region)
        return True

    def _worth(self, region: Region, grown: Region, gain: int) -> bool:
        """Whether a sum of products is better here than in the library: whether the `gain` in bytes takes longer than what
        its operations, and those done again for it, lose."""
        assert grown.plan is not None
        lost = LOST * max(0.0, grown.flops - region.flops) / grown.plan.rate if grown.plan.rate else 0.0
        return grown.plan.handed_over(gain / 2) >= lost

    def _convert(self, region: Region) -> str | None:
        """Makes the cascade of a region; the reason if there is none."""
        members = self._with_free(region.nodes)
        ordered = sorted(members, key=self.place.__getitem__)
        given = {g for n in ordered for g in n.all_input_nodes if g not in members}
        region.inputs = sorted(given, key=self.place.__getitem__)
        region.outputs = [n for n in ordered if n in region.nodes and any(u not in members for u in n.users)]
        try:
            region.cascade = convert(self._name(region), region.inputs, ordered, region.outputs)
        except NotConvertible as e:
            return str(e)
        return None

    def _plan(self, region: Region) -> str | None:
        """Asks the planner for the number of kernels; the reason if it has no plan."""
        assert region.cascade is not None
        try:
            region.plan = self.planner.plan(region.cascade)
        except EinloomError as e:
            return str(e)
        return None

    def _check(self, region: Region) -> str | None:
        """Whether the device's backend takes the plan; the reason if not."""
        assert region.cascade is not None
        try:
            self.planner.check(region.cascade)
        except EinloomError as e:
            return str(e)
        return None

    def _name(self, region: Region) -> str:
        """What the user calls the place of the first reduction: its function, its module's class; or else the last value
        in the region that has a name."""
        nodes = sorted(region.nodes, key=self.place.__getitem__)
        first = next(n for n in nodes if self.kinds[n].reduction and not self.kinds[n].contraction)
        named = [n.meta["einloom_name"] for n in nodes if n.meta.get("einloom_named")]
        return str(first.meta.get("einloom_within") or (named or [first.meta.get("einloom_name")])[-1] or "region")

    def _pays(self, region: Region) -> bool:
        """Whether memory is spared; otherwise the region is dissolved."""
        alone, together = sum(self._alone(n) for n in region.nodes), self._bytes(region.nodes)
        if together < alone:
            return True
        for n in region.nodes:
            del self.region_of[n]
        reductions = (n for n in region.nodes if self.kinds[n].reduction and not self.kinds[n].contraction)
        first = min(reductions, key=self.place.__getitem__)
        reason = f"by itself it moves as many bytes ({together}) as without us ({alone})"
        self.refusals.append(Refusal(str(first.target), reason, place_of(first)))
        return False

    # ---- bytes and order

    def _free(self) -> set[Node]:
        free: set[Node] = set()
        for n in self.nodes:
            kind = self.kinds[n]
            if not kind.refused and all(g in free for g in n.all_input_nodes):
                free.add(n)
        return free

    def _with_free(self, nodes: set[Node]) -> set[Node]:
        members, todo = set(nodes), list(nodes)
        while todo:
            for given in todo.pop().all_input_nodes:
                if given in self.free and given not in members:
                    members.add(given)
                    todo.append(given)
        return members

    def _alone(self, node: Node) -> int:
        """Bytes of an operation by itself. Views move nothing; what is elementwise counts in full."""
        return 0 if moves_nothing(node) else self._bytes({node})

    def _bytes(self, nodes: set[Node]) -> int:
        """Bytes read and written at the border of a set of operations."""
        given = {g for n in nodes for g in n.all_input_nodes if g not in nodes and g not in self.free}
        made = {n for n in nodes if any(u not in nodes for u in n.users)}
        return sum(tensor_bytes(n) for n in given) + sum(tensor_bytes(n) for n in made)

    def _acyclic(self, grown: Region) -> bool:
        group = {**self.region_of, **dict.fromkeys(grown.nodes, grown)}
        return in_order([n for n in self.nodes if n not in self.free], group) is not None
