"""What the tests share: frameworks that are there, references in f64, textbook programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_report_header() -> str:
    said = []
    for name in ("torch", "jax", "ml_dtypes"):
        try:
            said.append(f"{name} {__import__(name).__version__}")
        except ImportError:
            said.append(f"{name} is not installed: its tests are reported as skipped")
    return "frameworks: " + ", ".join(said)


def pytest_configure() -> None:
    # What the tests compare with must not be the one call that PyTorch computes with half the digits.
    try:
        from einloom.torch.accurate import settle
    except ImportError:
        return
    settle()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def attention(q, k, v, causal=False):
    """Attention in f64: q[b,h,m,d], k[b,h,n,d], v[b,h,n,e]."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def softmax(x):
    """Softmax of rows in f64."""
    x = np.asarray(x, dtype=np.float64)
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)
