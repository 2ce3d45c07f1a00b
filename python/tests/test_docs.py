"""The examples of the pages and of the package's own text are run."""

from __future__ import annotations

import doctest
import re

from conftest import ROOT

import einloom


def test_the_examples_of_the_api_page_run(capsys):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert names["plan"].kernels[0].levels[0].ratio >= 1


def test_every_public_name_is_on_the_api_page():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    inside = ("annotations", "errors", "html", "report", "torch", "units")
    public = [n for n in dir(einloom) if not n.startswith("_") and n not in inside]
    assert [n for n in public if n not in page] == []


def test_the_examples_in_the_package_run():
    assert doctest.testmod(einloom).failed == 0
