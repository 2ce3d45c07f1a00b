"""FlexAttention's examples as cascades: the same values as the textbook's attention."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "python"))
from variants import Variant, textbook, variants  # noqa: E402

POSITIONS = 400


@pytest.mark.parametrize("variant", variants(POSITIONS), ids=lambda v: v.name)
def test_variants_agree_with_the_textbook(variant: Variant) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, POSITIONS, 16) for _ in range(3))
    x = variant.inputs(2, 2, POSITIONS, torch.device("cpu"))
    scale = 1 / math.sqrt(16)
    want = textbook(variant, q.double(), k.double(), v.double(), x, scale)
    attention = einloom.compile(variant.text())
    got = attention(q, k, v, **x)
    plain = textbook(variant, q, k, v, x, scale)  # scores of some hundreds have errors of their own in f32
    assert (got - want).abs().max() <= 3 * (plain - want).abs().max() + 1e-6
    assert attention.passes["N"].derived == 1
