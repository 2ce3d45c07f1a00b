"""Autotuning that is remembered.

`EINLOOM_TUNE` says how much is measured when a program meets sizes for the first time: `off` (nothing; the planner's model
decides), `quick` (a few seconds: each tile by half and double) or `full` (until nothing near is better). Results go to
`tuning.json` in `EINLOOM_CACHE_DIR` (or the user's cache folder) and are used from then on, with `off` too. The file can
be shared: `export(path)` writes it, `load(path)` adds another's results, which count on the same device only.

While it measures, a terminal shows progress; at the end one line on standard error says what to paste.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Union

from . import _native, units
from .errors import EinloomError

if TYPE_CHECKING:
    from ._cascade import Cascade

Tiles = dict[str, int]

_BETTER = 0.97
"""As much of the best time so far must a measurement take at most to be called better: less is noise."""
_MOST = {"quick": 24, "full": 200}
"""Measurements at most."""


def results_file() -> Optional[Path]:
    """Where results are kept; `None` if the environment names no folder at all."""
    folder = _native.cache_folder()
    return None if folder is None else folder / "tuning.json"


def results() -> dict[str, Any]:
    """What is remembered, by key: program, device, sizes, tiles, measured seconds."""
    path = results_file()
    return {} if path is None or not path.exists() else _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["results"]
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"{path} holds no tuning results") from e
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no tuning results")
    return found


def export(path: Union[str, os.PathLike[str]]) -> int:
    """Writes everything that is remembered to a file; how many results there are."""
    found = results()
    _write(Path(path), found)
    return len(found)


def load(path: Union[str, os.PathLike[str]]) -> int:
    """Adds the results of a file to what is remembered; how many it has. Where both have one, the faster stays."""
    new, kept = _read(Path(path)), results()
    for key, entry in new.items():
        if key not in kept or entry["seconds"] < kept[key]["seconds"]:
            kept[key] = entry
    target = results_file()
    if target is None:
        raise OSError("there is no folder to keep results in: set EINLOOM_CACHE_DIR")
    target.parent.mkdir(parents=True, exist_ok=True)
    _write(target, kept)
    return len(new)


def _write(path: Path, found: Mapping[str, Any]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps({"results": found}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    new.replace(path)


def _neighbours(tiles: Tiles, extents: Mapping[str, int], steps: tuple[float, ...]) -> Iterator[Tiles]:
    """Tiles that differ in one index."""
    for index, tile in tiles.items():
        for step in steps:
            other = max(1, int(tile * step))
            if other != tile and other < 2 * extents.get(index, 1):
                yield {**tiles, index: other}


def search(
    measure: Callable[[Tiles], Optional[float]],
    tiles: Tiles,
    extents: Mapping[str, int],
    effort: str,
    tell: Callable[[int, float], None] = lambda done, best: None,
) -> tuple[Tiles, float, float]:
    """The best tiles near `tiles`, their time, and the time of the planner's. Empty tiles are the planner's own.

    Steepest descent: all neighbours of the best are measured, the best of them is next, until none is better.
    """
    planned = measure({})
    if planned is None:
        raise ValueError("the planned kernel cannot be measured")
    best, best_time, at = {}, planned, dict(tiles)
    seen: set[tuple[tuple[str, int], ...]] = {tuple(sorted(at.items()))}
    done = 1
    steps = (0.5, 2.0) if effort == "quick" else (0.25, 0.5, 2.0, 4.0)
    while done < _MOST[effort]:
        improved = False
        for candidate in _neighbours(at, extents, steps):
            mark = tuple(sorted(candidate.items()))
            if mark in seen or done >= _MOST[effort]:
                continue
            seen.add(mark)
            seconds = measure(candidate)
            done += 1
            if seconds is not None and seconds < _BETTER * best_time:
                best, best_time, improved = candidate, seconds, True
            tell(done, best_time)
        if not improved:
            break
        at = dict(best)
    return best, best_time, planned


def _search(program: Cascade, trial: _native.Trial, effort: str) -> None:
    """What a call of a new size does when tuning is on."""
    shown = sys.stderr.isatty()

    def tell(done: int, best: float) -> None:
        if shown:
            sys.stderr.write(f"\r\x1b[Keinloom: tuning {program.name}: {done} measured, best {units.seconds(best)}")
            sys.stderr.flush()

    best, seconds, planned = search(trial.measure, trial.tiles, trial.extents, effort, tell)
    try:
        trial.adopt(best, seconds, planned)
    except EinloomError as e:
        # The call goes on: it has its kernel, and only later processes do without.
        if e.code != "cache":
            raise
        print(f"einloom: {e}", file=sys.stderr)
    if shown:
        sys.stderr.write("\r\x1b[K")
    sizes = ", ".join(f"{name}={size}" for name, size in trial.sizes)
    if best:
        said = f"{units.seconds(planned)} -> {units.seconds(seconds)}: einloom.compile(..., tiles={best})"
    else:
        said = f"{units.seconds(planned)} as planned: einloom.compile(..., tiles={trial.tiles})"
    print(f"einloom: tuned {program.name} ({sizes}) on {trial.device}: {said}", file=sys.stderr)
