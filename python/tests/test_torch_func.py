"""`torch.func` over compiled cascades: gradients of any order through the reference path, and an error for those forwards."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import einloom  # noqa: E402

CASCADE = einloom.compile("""
cascade differentiated
input X[m,n]: f32
output Y: f32
P[m,n] = exp(X[m,n] - max(n) X[m,n])
Y[m,n] = P[m,n] / (sum(n) P[m,n])
""")


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def norm(f: Any) -> Any:
    return lambda x: f(x).square().sum()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "derive",
    [
        lambda f, x: grad(norm(f))(x),
        lambda f, x: jacrev(f)(x),
        lambda f, x: jacrev(jacrev(f))(x),
        lambda f, x: vjp(f, x)[1](x)[0],
        lambda f, x: vmap(grad(norm(f)))(x.view(2, 2, 5)),
        lambda f, x: grad(norm(grad(norm(f))))(x),
    ],
)
def test_gradients_backwards(derive: Any, x: torch.Tensor) -> None:
    torch.testing.assert_close(derive(CASCADE, x), derive(softmax, x), rtol=1e-4, atol=1e-6)


def test_integers_have_none(x: torch.Tensor) -> None:
    gather = einloom.compile("""
input X[m,n]: f32, ids[t]: i32
output Y: f32, Z: i32
Y[t,n] = exp(X[ids[t],n])
Z[t] = ids[t] + 1
""")
    ids = torch.tensor([1, 3, 3])
    got = grad(lambda t: gather(t, ids)[0].sum())(x)
    torch.testing.assert_close(got, grad(lambda t: t[ids].exp().sum())(x))


@pytest.mark.parametrize(
    "derive",
    [
        lambda f, x: jacfwd(f)(x),
        lambda f, x: hessian(norm(f))(x),
        lambda f, x: jvp(grad(norm(f)), (x,), (x,)),
    ],
)
def test_derivatives_forwards_are_refused(derive: Any, x: torch.Tensor) -> None:
    with pytest.raises(einloom.GradientError, match="no derivatives forwards"):
        derive(CASCADE, x)


def test_tensors_without_a_tangent_are_computed_beside_those_with_one(x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        torch.testing.assert_close(CASCADE(x), softmax(x))
        with pytest.raises(einloom.GradientError, match="no derivatives forwards"):
            CASCADE(forward_ad.make_dual(x, x))
