"""Mistakes: the class of the exception, the program's own names, the line, what to do instead."""

from __future__ import annotations

import re
import traceback

import numpy as np
import pytest

import einloom

PROGRAM = """\
cascade scores
param scale = 1
input  Q[m,d]: f32, K[n,d]: f32
input  ids[t]: i32, mask[m]: b1
output S: f32, G: f32
S[m,n] = where(mask[m], scale * sum(d) Q[m,d] * K[n,d], 0)
G[t,d] = Q[ids[t],d]
"""


@pytest.fixture
def program():
    return einloom.compile(PROGRAM)


def arrays(m=4, n=5, d=6, t=2, **changes):
    given = {
        "Q": np.ones((m, d), np.float32),
        "K": np.ones((n, d), np.float32),
        "ids": np.zeros(t, np.int32),
        "mask": np.ones(m, bool),
    }
    return {**given, **changes}


def test_what_is_right_is_taken(program):
    s, g = program(**arrays())
    assert (s == 6).all() and g.shape == (2, 6)


CASES = {
    "dimensions": (dict(K=np.ones((5, 6, 1), np.float32)), einloom.ShapeError, ValueError, "K", 3),
    "contradiction": (dict(K=np.ones((5, 7), np.float32)), einloom.ShapeError, ValueError, "D", 3),
    "integers for reals": (dict(Q=np.ones((4, 6), np.int32)), einloom.DtypeError, TypeError, r"Q\[M, D\] is declared f32, but the array is int32", 3),
    "complex": (dict(Q=np.ones((4, 6), np.complex64)), einloom.DtypeError, TypeError, "complex64", 3),
    "two types for one": (dict(K=np.ones((5, 6))), einloom.DtypeError, TypeError, "Q is float32 and K is float64|K is float64", 3),
    "reals for integers": (dict(ids=np.zeros(2, np.float32)), einloom.DtypeError, TypeError, "ids", 4),
    "bytes for truth": (dict(mask=np.ones(4, np.uint8)), einloom.DtypeError, TypeError, r"mask\[M\] is declared b1, but the array is uint8", 4),
    "backwards": (dict(Q=np.ones((4, 6), np.float32)[::-1]), einloom.LayoutError, ValueError, "Q runs backwards", 3),
    "no array": (dict(Q=3.5), einloom.DtypeError, TypeError, "Q: float has no `__dlpack__`", 3),
    "unknown name": (dict(W=1.0), einloom.UnknownInput, TypeError, "no input, parameter or rank called W", None),
    "unknown rank": (dict(M=9), einloom.ShapeError, ValueError, "M", None),
}


@pytest.mark.parametrize("changes, error, base, says, line", CASES.values(), ids=CASES.keys())
def test_wrong_arrays(program, changes, error, base, says, line):
    with pytest.raises(error, match=says) as caught:
        program(**arrays(**changes))
    assert isinstance(caught.value, base) and isinstance(caught.value, einloom.EinloomError)
    if line is not None:
        assert caught.value.line == line
        assert PROGRAM.splitlines()[line - 1] in str(caught.value)


def test_missing_inputs(program):
    with pytest.raises(einloom.MissingInput, match="the input ids is missing") as caught:
        program(np.ones((4, 6), np.float32), np.ones((5, 6), np.float32))
    assert isinstance(caught.value, TypeError) and caught.value.line == 4
    assert "the inputs of scores are Q, K, ids, mask" in str(caught.value)


def test_too_many_and_twice(program):
    given = arrays()
    with pytest.raises(einloom.UnknownInput, match="scores takes 4 arrays, 5 were given"):
        program(*given.values(), 1)
    with pytest.raises(einloom.UnknownInput, match="Q is given by position and by name"):
        program(given["Q"], **given)


def test_gathers_outside_their_tensor(program):
    with pytest.raises(einloom.OutOfRange, match="Q") as caught:
        program(**arrays(ids=np.array([0, 9], np.int32)))
    assert isinstance(caught.value, IndexError)
    (at,) = [f for f in caught.value.findings if f.line]
    assert "ids" in at.source_line and at.line == caught.value.line


OUT = {
    "shape": (np.empty((5, 4), np.float32), einloom.ShapeError, "S has shape"),
    "type": (np.empty((4, 5)), einloom.DtypeError, "S is float64, the result is float32"),
    "repeated": (np.lib.stride_tricks.as_strided(np.empty(5, np.float32), (4, 5), (0, 4)), einloom.LayoutError, "share memory"),
}


@pytest.mark.parametrize("array, error, says", OUT.values(), ids=OUT.keys())
def test_wrong_results(program, array, error, says):
    with pytest.raises(error, match=says):
        program(**arrays(), out={"S": array, "G": np.empty((2, 6), np.float32)})


def test_results_that_must_not_be_written(program):
    fixed = np.empty((4, 5), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(einloom.LayoutError, match="must not be written"):
        program(**arrays(), out=(fixed, np.empty((2, 6), np.float32)))
    with pytest.raises(einloom.UnknownInput, match="`out` has 1 array, the program has 2 outputs"):
        program(**arrays(), out=np.empty((4, 5), np.float32))
    given = arrays(n=6, m=6)
    with pytest.raises(einloom.LayoutError, match="S lies in the same memory as Q"):
        program(**given, out=(given["Q"], np.empty((2, 6), np.float32)))
    with pytest.raises(einloom.MissingInput, match="`out` has no G"):
        program(**arrays(), out={"S": np.empty((4, 5), np.float32)})


def test_declared_types_can_be_insisted_on():
    strict = einloom.compile(PROGRAM, dtypes="declared")
    strict(**arrays())
    with pytest.raises(einloom.DtypeError, match="is declared f32, but the array is float64"):
        strict(**arrays(Q=np.ones((4, 6)), K=np.ones((5, 6))))
    with pytest.raises(einloom.UsageError, match="'follow' or 'declared'"):
        einloom.compile(PROGRAM, dtypes="loose")  # type: ignore[arg-type]


def test_a_text_with_mistakes_is_a_syntax_error_that_names_them_all():
    text = "cascade c\ninput Q[m,d]: bf17, K[n,d]: f32\noutput S: f32\nS[m,n] = sum(d) Q[m,d] * K[n]\n"
    with pytest.raises(einloom.CascadeError) as caught:
        einloom.compile(text, origin="scores.ein")
    error = caught.value
    assert isinstance(error, SyntaxError) and isinstance(error, einloom.EinloomError)
    assert (error.filename, error.lineno, error.offset) == ("scores.ein", 2, 15)
    assert [f.code for f in error.findings] == ["unknown-dtype", "wrong-number-of-indices"]
    assert str(error).splitlines()[:4] == [
        "there is no number type `bf17`",
        "  --> scores.ein:2:15",
        "  2 | input Q[m,d]: bf17, K[n,d]: f32",
        "    |               ^^^^",
    ]
    shown = "".join(traceback.format_exception_only(error))
    assert 'File "scores.ein", line 2' in shown and "^^^^" in shown


def test_machines_and_targets_that_do_not_exist():
    softmax = einloom.library.softmax
    with pytest.raises(einloom.MachineError, match="there is no machine `h300`"):
        softmax.plan(machine="h300", M=8, N=8)
    with pytest.raises(einloom.UsageError, match="no source for `metal`"):
        softmax.source("metal", M=8, N=8)
    with pytest.raises(einloom.MissingInput, match="N has no size") as caught:
        softmax.plan(M=8)
    assert "give `N=…`" in str(caught.value)


def test_missing_files_are_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        einloom.compile(tmp_path / "none.ein")
    with pytest.raises(FileNotFoundError):
        einloom.compile("none.ein")


def test_parameters_and_sizes_that_are_none():
    program = einloom.compile("input X[n]: f32\nparam eps = 1\noutput Y: f32\nrank W\nY[n] = X[n] * W + eps\n")
    x = np.ones(2, np.float32)
    with pytest.raises(einloom.DtypeError, match="eps is None, which is not a number") as caught:
        program(x, W=2, eps=None)
    assert caught.value.line == 2
    for size in (-1, 2.5, "3"):
        with pytest.raises(einloom.DtypeError, match="W is .*, which is not a number of elements"):
            program(x, W=size)
    np.testing.assert_array_equal(program(x, W=0, eps=np.float32(3)), [3, 3])


def test_64_bit_integers_that_do_not_fit() -> None:
    largest = einloom.compile("input X[m,n]: i32\noutput Y: i32\nY[m] = max(n) X[m,n]\n", origin="largest.ein")
    edge = np.array([[2**31 - 1, -(2**31)], [1, 2]], np.int64)
    assert largest(edge).tolist() == [2**31 - 1, 2]
    wide = np.array([[1, 2, 3], [4, 5, -(2**31) - 1]], np.int64)
    for given, at in ((wide, "X[1, 2]"), (wide.T, "X[2, 1]"), (np.repeat(wide, 2, 1)[:, ::2], "X[1, 2]")):
        with pytest.raises(einloom.OutOfRange, match=re.escape(f"{at} is -2147483649")) as caught:
            largest(given)
        assert isinstance(caught.value, IndexError) and caught.value.line == 1
    repeated = np.broadcast_to(wide[1, 2], (4, 5))
    with pytest.raises(einloom.OutOfRange, match=re.escape("X[0, 0]")):
        largest(repeated)
    assert largest(wide[:, :2]).tolist() == [2, 5]
    assert largest(wide[:0]).shape == (0,)
