"""Runs the pages of `docs/` that are programs: their Python blocks in order, in one namespace.

A `text` block that follows a Python block is what it must print; `EINLOOM_BLESS=1` writes what it does print. A block that
starts with `# not run` is only shown.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
from pathlib import Path

_BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def run(page: Path) -> None:
    """Runs a page; raises where a block fails or prints something else than the page says."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    out, at = [], 0
    for block in _BLOCK.finditer(text):
        code, expected = block.groups()
        if code.startswith("# not run"):
            continue
        line = text.count("\n", 0, block.start()) + 2
        printed = _run("\n" * (line - 1) + code, page, namespace)
        if expected is None:
            assert not printed, f"{page.name}:{line}: prints {printed!r}, which the page does not show"
            continue
        if os.environ.get("EINLOOM_BLESS"):
            out.append(text[at : block.start(2)] + printed)
            at = block.end(2)
        else:
            assert printed == expected, f"{page.name}:{line} prints\n{printed}"
    if os.environ.get("EINLOOM_BLESS"):
        page.write_text("".join(out) + text[at:], encoding="utf-8")


def _run(code: str, page: Path, namespace: dict[str, object]) -> str:
    name = str(page)
    # Tools that show source lines, Dynamo among them, find the page's.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)  # noqa: S102
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n" if printed.getvalue() else ""
