"""Calls with JAX's arrays, which cannot be written: results are new ones."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import attention, softmax

import einloom

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy


def test_results_are_arrays_of_jax():
    x = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    y = einloom.library.softmax(x)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype
    np.testing.assert_allclose(y, softmax(x), atol=1e-6)
    np.testing.assert_allclose(y + 1, softmax(x) + 1, atol=1e-6)


def test_bfloat16():
    q, k, v = (jax.random.normal(jax.random.key(n), (1, 2, 24, 16)).astype(jnp.bfloat16) for n in range(3))
    o = einloom.library.attention(q, k, v)
    assert o.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(o, np.float64), attention(q, k, v), atol=2e-2)


def test_no_two_results_share_memory():
    x = jnp.ones((4, 8))
    results = [einloom.library.softmax(x * jnp.arange(8) * k) for k in range(20)]
    for k, y in enumerate(results):
        np.testing.assert_allclose(y, jax.nn.softmax(x * jnp.arange(8) * k, -1), atol=1e-6)


def test_arrays_that_must_not_be_written_are_no_results():
    x = jnp.ones((4, 8))
    with pytest.raises(einloom.LayoutError, match="must not be written"):
        einloom.library.softmax(x, out=jnp.zeros((4, 8)))


def test_tracers_have_no_memory():
    with pytest.raises(einloom.DeviceError, match="X: .*[Tt]race"):
        jax.jit(einloom.library.softmax.__call__)(jnp.ones((4, 8)))
