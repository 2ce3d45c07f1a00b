"""Calls with NumPy arrays: by position and name, views, types, sizes, `out=`."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, attention, softmax

import einloom

SOFTMAX = """
cascade softmax
input  X[m,n]: f32
output Y: f32
P[m,n] = exp(X[m,n] - max(n) X[m,n])
Y[m,n] = P[m,n] / (sum(n) P[m,n])
"""
SCALED = """
cascade scaled
param scale = 2
input  X[m,n]: f32, ids[t]: i32
output Y: f32, Z: f32
Y[m,n] = scale * X[m,n]
Z[t,n] = X[ids[t],n]
"""


def qkv(rng, m=33, n=70, d=16, e=24, dtype=np.float32):
    shapes = (2, 3, m, d), (2, 3, n, d), (2, 3, n, e)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def test_attention_agrees_with_the_textbook(rng):
    q, k, v = qkv(rng)
    o = einloom.library.attention(q, k, v)
    assert isinstance(o, np.ndarray) and o.dtype == np.float32 and o.shape == (2, 3, 33, 24)
    np.testing.assert_allclose(o, attention(q, k, v), atol=2e-6)


def test_inputs_may_be_named_in_any_order(rng):
    q, k, v = qkv(rng)
    a = einloom.library.attention
    np.testing.assert_array_equal(a(q, V=v, K=k), a(q, k, v))


@pytest.mark.parametrize("dtype, atol", [(np.float64, 1e-12), (np.float32, 2e-6), (np.float16, 2e-3)])
def test_number_types_follow_the_arrays(rng, dtype, atol):
    q, k, v = qkv(rng, dtype=dtype)
    o = einloom.library.attention(q, k, v)
    assert o.dtype == dtype
    np.testing.assert_allclose(o.astype(np.float64), attention(q, k, v), atol=atol)


def test_types_that_numpy_borrows(rng):
    types = pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(types.bfloat16) for x in qkv(rng))
    o = einloom.library.attention(q, k.copy().swapaxes(0, 1).copy().swapaxes(0, 1), v)
    assert o.dtype == types.bfloat16
    np.testing.assert_allclose(o.astype(np.float64), attention(q, k, v), atol=1e-2)


VIEWS = {
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "every other row": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "every other column": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "inner slice": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(3, 5)])[..., 3:-5],
    "heads last": lambda x: np.ascontiguousarray(np.moveaxis(x, 1, 2)).transpose(0, 2, 1, 3),
    "not aligned": lambda x: np.concatenate([[0], x.ravel()]).astype(x.dtype)[1:].reshape(x.shape),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_views_are_used_where_they_are(rng, view, dtype):
    q, k, v = qkv(rng, dtype=dtype)
    expected = einloom.library.attention(q, k, v)
    for arguments in ((view(q), k, v), (q, view(k), v), (q, k, view(v)), (view(q), view(k), view(v))):
        got = einloom.library.attention(*arguments)
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), atol=1e-5 if dtype == np.float32 else 2e-3)


LINEAR = """
input X[b,m,k]: f32, W[k,n]: f32
output Y: f32
Y[b,m,n] = sum(k) X[b,m,k] * W[k,n]
"""


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_rows_of_several_matrices_are_one_where_memory_allows_it(rng, view):
    x, w = rng.standard_normal((6, 5, 40)).astype(np.float32), rng.standard_normal((40, 30)).astype(np.float32)
    expected = x.astype(np.float64) @ w.astype(np.float64)
    # A tile of both: they are one index.
    merged = einloom.compile(LINEAR, tiles={"b_m": 7})
    np.testing.assert_allclose(merged(x, w), expected, atol=1e-4)
    strided = view(x[None])[0]
    np.testing.assert_allclose(einloom.compile(LINEAR)(strided, w), expected, atol=1e-4)
    out = np.empty((5, 6, 30), np.float32).transpose(1, 0, 2)
    np.testing.assert_allclose(einloom.compile(LINEAR)(x, w, out=out), expected, atol=1e-4)
    if strided.flags.c_contiguous:
        np.testing.assert_allclose(merged(strided, w), expected, atol=1e-4)
    else:
        with pytest.raises(einloom.PlanError, match="no such index"):
            merged(strided, w)


def test_broadcast_views_repeat_elements(rng):
    x = rng.standard_normal(40).astype(np.float32)
    wide = np.broadcast_to(x, (7, 40))
    np.testing.assert_allclose(einloom.compile(SOFTMAX)(wide), softmax(wide), atol=1e-6)
    tall = np.broadcast_to(x[:7, None], (7, 40))
    np.testing.assert_allclose(einloom.compile(SOFTMAX)(tall), softmax(tall), atol=1e-6)


def test_results_go_where_out_says(rng):
    x = rng.standard_normal((9, 50)).astype(np.float32)
    program = einloom.compile(SOFTMAX)
    dense = np.empty_like(x)
    assert program(x, out=dense) is dense
    np.testing.assert_allclose(dense, softmax(x), atol=1e-6)
    for out in (np.full((50, 9), 7, np.float32).T, np.full((18, 100), 7, np.float32)[::2, 1::2]):
        assert program(x, out=out) is out
        np.testing.assert_allclose(out, softmax(x), atol=1e-6)
    around = np.full((18, 100), 7, np.float32)
    program(x, out=around[::2, 1::2])
    around[::2, 1::2] = 7
    assert (around == 7).all(), "only the elements of the view are written"


def test_several_results_are_a_tuple_and_out_may_be_a_mapping(rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    ids = np.array([3, 0, 3], np.int32)
    program = einloom.compile(SCALED)
    y, z = program(x, ids)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(z, x[ids])
    out = {"Z": np.empty((3, 4), np.float32), "Y": np.empty((5, 4), np.float32)}
    first, second = program(x, ids, out=out, scale=3.0)
    assert first is out["Y"] and second is out["Z"]
    np.testing.assert_array_equal(first, 3 * x)


def test_parameters_belong_to_the_call(rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    ids = np.zeros(2, np.int32)
    program = einloom.compile(SCALED, params={"scale": 5})
    for scale in (None, 7.0, None, 9.0, 7.0):
        y, _ = program(x, ids) if scale is None else program(x, ids, scale=scale)
        np.testing.assert_array_equal(y, np.float32(scale or 5) * x)


def test_indices_of_64_bits_are_read_where_they_are(rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    for ids in (np.array([3, 0, 4], np.int64), np.array([3, 9, 0, 9, 4], np.int64)[::2]):
        np.testing.assert_array_equal(einloom.compile(SCALED)(x, ids)[1], x[ids])


def test_bytes_that_are_no_i4_are_refused():
    total = einloom.compile("input X[m,n]: i4\noutput Y: i32\nY[m] = sum(n) X[m,n]\n")
    x = np.array([[-8, 7, 0], [1, 2, 3]], np.int8)
    np.testing.assert_array_equal(total(x), [-1, 6])
    for value in (8, -9, 127):
        wrong = x.copy()
        wrong[1, 2] = value
        with pytest.raises(einloom.DtypeError, match=rf"`X` holds i4, and its element at \[1, 2\] is {value}"):
            total(wrong)
        # Nobody asks what is beside the array.
        np.testing.assert_array_equal(total(wrong[:, :2]), [-1, 3])


def test_sizes_change_from_call_to_call(rng):
    program = einloom.compile(SOFTMAX)
    for m, n in ((1, 1), (5, 0), (0, 5), (17, 3), (3, 1000), (17, 3)):
        x = rng.standard_normal((m, n)).astype(np.float32)
        got = program(x)
        assert got.shape == (m, n)
        if n:
            np.testing.assert_allclose(got, softmax(x), atol=1e-6)
    assert program.kernel_count == 5


def test_a_kernel_is_kept_for_what_the_arrays_are(rng):
    program = einloom.compile(SOFTMAX)
    x = rng.standard_normal((8, 64)).astype(np.float32)
    for _ in range(3):
        program(x.copy())
    assert program.kernel_count == 1
    program(x.astype(np.float64))
    assert program.kernel_count == 2
    program.clear_kernels()
    assert program.kernel_count == 0
    np.testing.assert_allclose(program(x), softmax(x), atol=1e-6)


def test_read_only_arrays_are_inputs(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    x.flags.writeable = False
    np.testing.assert_allclose(einloom.compile(SOFTMAX)(x), softmax(x), atol=1e-6)


def test_any_object_with_dlpack_is_an_array(rng):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = rng.standard_normal((3, 4)).astype(np.float32)
    out = np.empty_like(x)
    einloom.compile(SOFTMAX)(Wrapped(x), out=out)
    np.testing.assert_allclose(out, softmax(x), atol=1e-6)
    with pytest.raises(BufferError, match="out="):
        einloom.compile(SOFTMAX)(Wrapped(x))


def test_threads_call_at_once(rng):
    program = einloom.compile(SOFTMAX)
    arrays = [rng.standard_normal((40 + k % 3, 333)).astype(np.float32) for k in range(12)]
    got: list = [None] * len(arrays)

    def work(k: int) -> None:
        for _ in range(20):
            got[k] = program(arrays[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(arrays))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for x, y in zip(arrays, got):
        np.testing.assert_allclose(y, softmax(x), atol=1e-6)


def test_other_threads_of_python_run_meanwhile(rng):
    program = einloom.library.attention
    q, k, v = qkv(rng, m=1500, n=1500, d=64, e=64)
    program(q, k, v)
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks
    program(q, k, v)
    during = ticks - before
    done.set()
    counter.join()
    assert during > 100, "a call holds Python up"


def test_forked_processes_can_call(rng):
    import multiprocessing

    q, k, v = qkv(rng, m=600, n=600)
    expected = einloom.library.attention(q, k, v)
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        for got in pool.starmap_async(_attend, [(q, k, v)] * 3).get(timeout=60):
            np.testing.assert_array_equal(got, expected)


def _attend(q, k, v):
    return einloom.library.attention(q, k, v)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads(rng, threads):
    q, k, v = qkv(rng, m=300, n=300)
    text = einloom.library.text("attention_causal")
    causal = einloom.compile(text, threads=threads)
    np.testing.assert_array_equal(causal(q, k, v), einloom.compile(text)(q, k, v))


def test_programs_come_from_files_texts_and_the_library(tmp_path, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    path = tmp_path / "softmax.ein"
    path.write_text(SOFTMAX)
    for program in (path, str(path), SOFTMAX):
        np.testing.assert_allclose(einloom.compile(program)(x), softmax(x), atol=1e-6)
    assert set(einloom.library.names()) == {f.stem for f in (ROOT / "cascades").glob("*.ein")}
    assert einloom.library.softmax is einloom.library.softmax
    with pytest.raises(AttributeError, match="no shipped program 'atention'"):
        einloom.library.atention


def test_numbers_of_numpy_are_arrays_without_dimensions(rng):
    scale = einloom.compile("input X[n]: f32, a: f32\noutput Y: f32\nY = a * sum(n) X[n]\n")
    x = rng.standard_normal(7).astype(np.float32)
    np.testing.assert_allclose(scale(x, x.max()), x.max() * x.sum(), rtol=1e-5)
    with pytest.raises(einloom.LayoutError, match="must not be written"):
        scale(x, x.max(), out=x.max())
    with pytest.raises(einloom.DtypeError, match="declare a `param`"):
        scale(x, 2.0)


def test_programs_are_copied_and_pickled(rng):
    program = einloom.compile("input X[m,n]: f32\nparam a = 2\noutput Y: f32\nY[m] = a * sum(n) X[m,n]\n",
                              exact=True, threads=1, params={"a": 3.0}, origin="here.ein")
    assert copy.deepcopy(program) is program and copy.copy(program) is program
    again = pickle.loads(pickle.dumps(program))
    x = rng.standard_normal((3, 4)).astype(np.float32)
    assert (again.text, again.origin, again.options) == (program.text, "here.ein", program.options)
    np.testing.assert_array_equal(again(x), program(x))


def test_kernels_share_threads():
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("this system does not list threads")
    program = einloom.compile(SOFTMAX)
    program(np.ones((400, 4000), np.float32))
    before = len(list(tasks.iterdir()))
    for n in range(1, 20):
        program(np.ones((2, n), np.float32))
        program(np.ones((400 + n, 4000), np.float32))
    assert len(list(tasks.iterdir())) <= before
