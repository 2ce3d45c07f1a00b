"""Reports for notebooks: plain HTML and inline SVG, which need nothing from the network and follow the page's colours."""

from __future__ import annotations

from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Iterable, Sequence

from . import units

if TYPE_CHECKING:
    from ._cascade import Cascade
    from .report import Plan

_STYLE = (
    "<style>.einloom{font-family:sans-serif;max-width:60em}.einloom table{border-collapse:collapse;margin:.4em 0}"
    ".einloom th,.einloom td{border:1px solid #8884;padding:.15em .6em;text-align:left;vertical-align:top}"
    ".einloom pre,.einloom code{font-family:monospace;white-space:pre-wrap}"
    ".einloom summary{cursor:pointer;font-weight:bold}.einloom svg text{fill:currentColor;font:11px sans-serif}</style>"
)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _details(title: str, inside: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{inside}</details>"


def cascade(program: Cascade) -> str:
    """The report of a program: passes, steps, refusals, its text, and the plan of the last call where there is one."""
    passes = _table(("rank", "tensor", "passes as written", "as derived", "live"), program.passes.rows())
    steps = _table(
        ("", "rule", "where", "because", "before", "after"),
        [
            (str(k), s.rule, f"{s.statement} over {s.rank}", s.why, s.before, s.after)
            for k, s in enumerate(program.steps, 1)
        ],
    )
    parts = [
        f"<b>{escape(program.name)}</b>({escape(', '.join(program.inputs))}) → {escape(', '.join(program.outputs))}",
        _details("Passes over memory", passes, is_open=True),
        _details(f"{len(program.steps)} steps", steps),
    ]
    if program.refusals:
        rows = [(r.rule, f"{r.statement} over {r.rank}", str(r.line), r.reason, r.hint or "") for r in program.refusals]
        parts.append(_details("Refused", _table(("rule", "where", "line", "because", "hint"), dict.fromkeys(rows))))
    parts.append(_details("Text", f"<pre>{escape(program.text.strip())}</pre>"))
    planned = program.last_plan()
    if planned is not None:
        parts.append(_details(f"Plan of the last call ({planned.machine})", _plan(planned), is_open=True))
    return f'<div class="einloom">{_STYLE}{"".join(parts)}</div>'


def plan(planned: Plan) -> str:
    """The report of a plan: kernels, bytes against the bound, roofline."""
    return f'<div class="einloom">{_STYLE}{_plan(planned)}</div>'


def _plan(planned: Plan) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in planned.sizes.items())
    out = [f"<p>{escape(planned.cascade)} on {escape(planned.machine)}: {escape(sizes)}; "
           f"{escape(units.seconds(planned.seconds))} predicted</p>"]
    for kernel in planned.kernels:
        tiles = " ".join(f"{n}:{t}" for n, t in [*kernel.group.items(), *kernel.stream.items()])
        out.append(f"<p><b>{escape(kernel.name)}</b> computes {escape(', '.join(kernel.statements))}; tiles "
                   f"<code>{escape(tiles)}</code>; {escape(units.seconds(kernel.seconds))}, by {escape(kernel.bound_by)}</p>")
        rows = [
            (v.level, units.size(v.bytes), units.size(v.bound_bytes), f"{v.ratio:.2f}" if v.ratio else "-",
             units.seconds(v.seconds))
            for v in kernel.levels
        ]
        out.append(_table(("level", "planned", "bound", "ratio", "time"), rows))
    out += [f"<p>slower way: {escape(f)}</p>" for f in planned.fallbacks]
    out.append(roofline(planned))
    out.append(_details("Tile program", f"<pre>{escape(planned.program)}</pre>"))
    return "".join(out)


_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 520, 280, 64, 36


def roofline(planned: Plan) -> str:
    """Predicted operations per second over operations per byte, kernel by kernel, under the machine's roofs; as SVG.

    One slope per level of the memory. A kernel's point has the bytes of the outermost level; the hollow one beside it has
    the bytes that it must move.
    """
    kernels = [k for k in planned.kernels if k.flops > 0 and k.seconds > 0 and k.levels and k.levels[0].bytes > 0]
    if not kernels or planned.rate <= 0 or not planned.bandwidths:
        return ""
    bounds = [k.flops / max(k.levels[0].bound_bytes, 1) for k in kernels]
    ridges = [planned.rate / b for b in planned.bandwidths.values()]
    xs = [k.intensity for k in kernels] + bounds + ridges
    x0, x1 = floor(log10(min(xs))) - 0.3, log10(max(xs)) + 0.7
    y1 = log10(planned.rate) + 0.4
    y0 = min([log10(k.flops / k.seconds) for k in kernels] + [y1 - 3]) - 0.3

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = _LEFT + (log10(intensity) - x0) / (x1 - x0) * (_WIDTH - _LEFT - 10)
        y = (y1 - log10(rate)) / (y1 - y0) * (_HEIGHT - _BOTTOM - 10) + 10
        return round(x, 1), round(y, 1)

    parts = []
    for power in range(int(floor(x0)) + 1, int(x1) + 1):
        x, _ = at(10.0**power, planned.rate)
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">{units.count(10.0**power)}</text>')
    for power in range(int(floor(y0)) + 1, int(y1) + 1):
        _, y = at(1.0, 10.0**power)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{units.count(10.0**power)}</text>')
    for (level, bandwidth), ridge in zip(planned.bandwidths.items(), ridges):
        low = max(10**x0, 10**y0 / bandwidth)
        (xa, ya), (xb, yb) = at(low, bandwidth * low), at(ridge, planned.rate)
        parts.append(f'<line x1="{xa}" y1="{ya}" x2="{xb}" y2="{yb}" stroke="currentColor" opacity=".5"/>'
                     f'<text x="{xa + 4}" y="{ya - 4}" opacity=".7">{escape(level)}</text>')
    (xa, ya), (xb, _) = at(min(ridges), planned.rate), at(10**x1, planned.rate)
    parts.append(f'<line x1="{xa}" y1="{ya}" x2="{xb}" y2="{ya}" stroke="currentColor"/>')
    for kernel, bound in zip(kernels, bounds):
        rate = kernel.flops / kernel.seconds
        (x, y), (xb, _) = at(kernel.intensity, rate), at(bound, rate)
        title = f"{kernel.name}: {units.count(rate)}FLOP/s at {kernel.intensity:.1f} FLOP/B, bound {bound:.1f}"
        parts.append(f'<line x1="{x}" y1="{y}" x2="{xb}" y2="{y}" stroke="#c50" stroke-dasharray="3 3"/>'
                     f'<circle cx="{xb}" cy="{y}" r="4" fill="none" stroke="#c50"/>'
                     f'<circle cx="{x}" cy="{y}" r="4" fill="#c50"><title>{escape(title)}</title></circle>'
                     f'<text x="{x + 7}" y="{y + 14}">{escape(kernel.name)}</text>')
    axes = (f'<rect x="{_LEFT}" y="10" width="{_WIDTH - _LEFT - 10}" height="{_HEIGHT - _BOTTOM - 10}" fill="none" '
            f'stroke="currentColor" opacity=".3"/>'
            f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">operations per byte</text>'
            f'<text x="12" y="{_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 12 {_HEIGHT / 2})">'
            f'operations per second</text>')
    wide = _WIDTH + 14  # half of a number at the right end
    return (f'<svg viewBox="0 0 {wide} {_HEIGHT}" width="{wide}" height="{_HEIGHT}" role="img" '
            f'aria-label="roofline">{axes}{"".join(parts)}</svg>')
