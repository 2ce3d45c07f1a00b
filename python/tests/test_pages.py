"""The pages of `docs/` that are programs do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from pages import run  # noqa: E402

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["tutorial.md", "pytorch.md"])
def test_pages_run(page: str) -> None:
    run(DOCS / page)


def test_a_page_that_lies_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EINLOOM_BLESS", raising=False)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="prints"):
        run(page)
