"""Numbers for people."""

from __future__ import annotations


def _scaled(value: float, step: float, names: list[str]) -> tuple[float, str]:
    for name in names[:-1]:
        if abs(value) < step:
            return value, name
        value /= step
    return value, names[-1]


def _three(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def seconds(value: float) -> str:
    """A time, such as `3.2 ms`."""
    if value <= 0:
        return "0 s"
    for name, unit in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= unit:
            return f"{_three(value / unit)} {name}"
    return f"{_three(value / 1e-9)} ns"


def size(value: float) -> str:
    """Bytes, such as `16.0 MiB`."""
    scaled, name = _scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])
    return f"{_three(scaled) if name != 'B' else f'{scaled:.0f}'} {name}"


def count(value: float) -> str:
    """A number, such as `35.1 G`."""
    scaled, name = _scaled(value, 1000, ["", "k", "M", "G", "T", "P"])
    return f"{_three(scaled)} {name}".rstrip()


def several(number: int, of: str) -> str:
    """A number of things, such as `1 kernel` or `2 kernels`."""
    return f"{number} {of}" + ("" if number == 1 else "s")
