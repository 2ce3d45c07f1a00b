"""What a derivation and a plan say, as values that print themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence

from . import units


@dataclass(frozen=True)
class TensorPasses:
    """Passes over one input's fibre."""

    tensor: str
    written: int
    derived: int
    footprint: str
    """What must be live at once as derived: the rank's name for a whole fibre, `tile` where any tile will do."""
    written_by: tuple[tuple[str, ...], ...]
    """What is computed in each traversal, as written."""
    derived_by: tuple[tuple[str, ...], ...]
    """The same, as derived."""


@dataclass(frozen=True)
class RankPasses:
    """Passes over one rank: the largest of its tensors' numbers."""

    rank: str
    written: int
    derived: int
    tensors: Mapping[str, TensorPasses]


class Passes(Mapping[str, RankPasses]):
    """Passes by rank. Prints as a table."""

    def __init__(self, ranks: tuple[RankPasses, ...]) -> None:
        self._ranks = {r.rank: r for r in ranks}

    def __getitem__(self, rank: str) -> RankPasses:
        return self._ranks[rank]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Rank, tensor, passes as written, as derived, footprint."""
        out = []
        for r in self._ranks.values():
            for t in r.tensors.values():
                out.append((r.rank, t.tensor, str(t.written), str(t.derived), t.footprint))
        return out

    def __repr__(self) -> str:
        return table(("rank", "tensor", "written", "derived", "footprint"), self.rows())


@dataclass(frozen=True)
class Step:
    """One application of a rule."""

    rule: str
    statement: str
    rank: str
    condition: str
    """What must hold for the rule, and what it then does."""
    why: str
    """What satisfies it here."""
    node: str
    before: str
    after: str

    def __str__(self) -> str:
        lines = [f"{self.rule} {self.statement} over {self.rank}"]
        lines += [f"  {name:<7} {text}" for name, text in (
            ("rule", self.condition), ("here", self.why), ("before", self.before), ("after", self.after),
        )]
        return "\n".join(lines)


class Steps(tuple[Step, ...]):
    """The steps in order. Prints numbered."""

    def __repr__(self) -> str:
        if not self:
            return "no steps: the program streams as it is written"
        return "\n".join(f"{k} {step}" for k, step in enumerate(self, 1))


@dataclass(frozen=True)
class Refusal:
    """A rule that did not fire where it would have saved a pass."""

    rule: str
    statement: str
    rank: str
    reason: str
    hint: Optional[str]
    line: int

    def __str__(self) -> str:
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"refused: {self.rule} for {self.statement} over {self.rank} (line {self.line}): {self.reason}{hint}"


@dataclass(frozen=True)
class Stream:
    """One traversal of the streaming algorithm, as pseudocode."""

    over: tuple[str, ...]
    traversal: int
    states: tuple[str, ...]
    init: str
    step: str
    merge: str
    finish: str


@dataclass(frozen=True)
class Derivation:
    """What was derived from a program."""

    passes: Passes
    steps: Steps
    refusals: tuple[Refusal, ...]
    streams: tuple[Stream, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Derivation:
        """From what the extension module says."""

        def tensor(t: Mapping[str, Any]) -> TensorPasses:
            by = {key: tuple(map(tuple, t[key])) for key in ("written_by", "derived_by")}
            return TensorPasses(t["tensor"], t["written"], t["derived"], t["footprint"], **by)

        def rank(r: Mapping[str, Any]) -> RankPasses:
            tensors = {t["tensor"]: tensor(t) for t in r["tensors"]}
            return RankPasses(r["rank"], r["written"], r["derived"], tensors)

        def stream(s: Mapping[str, Any]) -> Stream:
            return Stream(**{**s, "over": tuple(s["over"]), "states": tuple(s["states"])})

        return cls(
            Passes(tuple(rank(r) for r in data["ranks"])),
            Steps(Step(**s) for s in data["steps"]),
            tuple(Refusal(**r) for r in data["refusals"]),
            tuple(stream(s) for s in data["streams"]),
        )

    def summary(self) -> list[str]:
        """A few lines for a terminal: passes that matter, the rules, the refusals."""
        out = []
        once = []
        for r in self.passes.values():
            if r.written <= 1 and r.derived <= 1:
                once.append(r.rank)
                continue
            tensors = ", ".join(f"{t.tensor} {t.written} -> {t.derived}" for t in r.tensors.values())
            out.append(f"  passes over {r.rank}: {tensors}")
        if once:
            out.append(f"  one pass over {', '.join(once)}")
        rules = list(dict.fromkeys(step.rule for step in self.steps))
        out.append(f"  {units.several(len(self.steps), 'step')}: {', '.join(rules)}" if rules else "  streams as it is written")
        saved = [f"  {line}" for line in dict.fromkeys(str(r).split("\n")[0] for r in self.refusals)]
        return out + saved


@dataclass(frozen=True)
class Level:
    """Bytes between one level of the memory and the next one in."""

    level: str
    bytes: int
    """Planned."""
    bound_bytes: int
    """What any program with these loads and stores must move."""
    seconds: float

    @property
    def ratio(self) -> Optional[float]:
        """Planned over bound; `None` where nothing has to move."""
        return self.bytes / self.bound_bytes if self.bound_bytes else None


@dataclass(frozen=True)
class Kernel:
    """One kernel of a plan."""

    name: str
    statements: tuple[str, ...]
    group: Mapping[str, int]
    """The indices that it partitions in parallel, with their tiles."""
    stream: Mapping[str, int]
    """The indices that it visits in order, with their tiles."""
    levels: tuple[Level, ...]
    """Outermost first."""
    seconds: float
    bound_by: str
    flops: float
    resident_bytes: int
    data_dependent: bool
    writes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def intensity(self) -> float:
        """Operations per byte of the outermost level."""
        moved = self.levels[0].bytes if self.levels else 0
        return self.flops / moved if moved else float("inf")

    def __str__(self) -> str:
        def axes(tiles: Mapping[str, int]) -> str:
            return " ".join(f"{n}:{t}" if t > 1 else n for n, t in tiles.items()) or "-"

        rows = [
            (v.level, units.size(v.bytes), units.size(v.bound_bytes), f"{v.ratio:.2f}" if v.ratio else "-",
             units.seconds(v.seconds))
            for v in self.levels
        ]
        lines = [
            f"{self.name} computes {', '.join(self.statements)}",
            f"  group   {axes(self.group)}",
            f"  stream  {axes(self.stream)}",
            f"  time    {units.seconds(self.seconds)} predicted, by {self.bound_by}; "
            f"{units.count(self.flops)} operations, {units.size(self.resident_bytes)} of tiles",
            *("  " + line for line in table(("level", "planned", "bound", "ratio", "time"), rows).splitlines()),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
    """Kernels and tiles for a machine at some sizes, with what they move against what they must."""

    cascade: str
    machine: str
    sizes: Mapping[str, int]
    kernels: tuple[Kernel, ...]
    compulsory_bytes: int
    """Every input once in, every output once out."""
    bandwidths: Mapping[str, float]
    """Bytes per second of the machine's levels, outermost first; levels that never limit a transfer are left out."""
    rate: float
    """Operations per second of the machine on the fastest of the program's number types."""
    shared: Mapping[str, Optional[float]]
    """Bytes that each level holds which all cores share, outermost first; `None` where no limit matters."""
    program: str
    """The tile program."""
    code: Optional[str] = None
    """Where the code of a kernel that ran came from."""
    fallbacks: tuple[str, ...] = ()
    """Slower ways that the kernels of a call had to take on a GPU, each with its reason."""

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels."""
        return sum(k.seconds for k in self.kernels)

    @property
    def flops(self) -> float:
        """Operations of all kernels, those that are done again included."""
        return sum(k.flops for k in self.kernels)

    def handed_over(self, size: float) -> float:
        """Seconds that a value of `size` bytes takes from one kernel to the next: out and in again, through the nearest level
        that all cores share and that holds it."""
        fits = [n for n, capacity in self.shared.items() if capacity is None or size <= capacity]
        through = self.bandwidths.get((fits or list(self.shared))[-1]) if self.shared else None
        return 2 * size / through if through else 0.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """From what the extension module says."""

        def kernel(k: Mapping[str, Any]) -> Kernel:
            tiles = {key: dict(k[key]) for key in ("group", "stream")}
            lists = {key: tuple(k[key]) for key in ("statements", "writes", "notes")}
            return Kernel(**{**k, **tiles, **lists, "levels": tuple(Level(**v) for v in k["levels"])})

        return cls(
            data["cascade"],
            data["machine"],
            dict(data["sizes"]),
            tuple(kernel(k) for k in data["kernels"]),
            data["compulsory_bytes"],
            {v["level"]: v["bandwidth"] for v in data["levels"] if v["bandwidth"] is not None},
            data["rate"],
            dict(data["shared"]),
            data["program"],
            data["code"],
            tuple(data["fallbacks"]),
        )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n}={s}" for n, s in self.sizes.items())
        plural = "" if len(self.kernels) == 1 else "s"
        head = f"{self.cascade} on {self.machine}: {sizes}\n"
        head += f"{len(self.kernels)} kernel{plural}, {units.seconds(self.seconds)} predicted\n"
        slower = [f"slower way: {f}" for f in self.fallbacks]
        return "\n\n".join([head.rstrip(), *map(str, self.kernels), *slower])

    def _repr_html_(self) -> str:
        from . import html

        return html.plan(self)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they must be; words to the left, numbers to the right."""
    columns = list(zip(head, *rows))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and all(cell[:1].isdigit() or cell == "-" for cell in column[1:]) for column in columns]

    def line(cells: tuple[str, ...]) -> str:
        placed = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right))
        return "  ".join(placed).rstrip()

    return "\n".join(line(cells) for cells in [head, *rows])
