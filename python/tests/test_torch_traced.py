"""Cascades inside of what traces, transforms or copies PyTorch programs, and tensors without memory."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402

NORM = einloom.compile("""
cascade norm
input  X[m,n]: f32, g[n]: f32
param  eps = 1e-5
output Y: f32
Y[m,n] = X[m,n] / sqrt(mean(n) X[m,n]^2 + eps) * g[n]
""")


def scaled(x, g):
    return NORM(g=g, X=x * 2, eps=1e-3) + 1


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [False, True])
def test_calls_are_traced_whole(dynamic):
    x, g = torch.randn(6, 10), torch.rand(10)
    traced = torch.compile(scaled, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (6, 4, 3):
        torch.testing.assert_close(traced(x[:rows], g), scaled(x[:rows], g))
    gradients = []
    for f in (traced, scaled):
        leaf = x.clone().requires_grad_()
        f(leaf, g).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_what_a_traced_call_lacks_is_named():
    x = torch.randn(2, 3)
    for call, said in [
        (lambda a: NORM(a), "the input g is missing"),
        (lambda a: NORM(a, a[0], h=a), "takes X, g"),
        (lambda a: NORM(a, a[0], out=a), "out= is not traced"),
        (lambda a: NORM(a, 1.0), "no tensor|out|stack"),
    ]:
        with pytest.raises(Exception, match=said):
            torch.compile(call, backend="eager", fullgraph=True)(x)


def test_exported_programs_hold_the_operator():
    class Model(torch.nn.Module):
        def forward(self, x, g):
            return NORM(x, g)

    x, g = torch.randn(6, 10), torch.rand(10)
    m = torch.export.Dim("m", min=2)
    exported = torch.export.export(Model(), (x, g), dynamic_shapes=({0: m}, None))
    assert any("einloom" in str(n.target) for n in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x[:4], g), NORM(x[:4], g))


def test_tensors_without_data_have_results_without_data():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = NORM(torch.empty(4, 8), torch.empty(8))
    assert fake.fake_mode is mode and fake.shape == (4, 8)
    meta = NORM(torch.empty(4, 8, device="meta"), torch.empty(8, device="meta"))
    assert meta.is_meta and meta.shape == (4, 8) and meta.dtype == torch.float32
    with pytest.raises(einloom.DeviceError, match="not in memory"):
        NORM(torch.empty(4, 8, device="meta"), torch.empty(8, device="meta"), out=meta)
    with pytest.raises(einloom.DeviceError, match="X on cpu and g on meta"):
        NORM(torch.empty(4, 8), torch.empty(8, device="meta"))


def test_memory_that_is_not_what_the_tensor_is_is_refused():
    z = torch.randn(4, 8, dtype=torch.complex64)
    plain, turned = z.imag, z.conj().imag
    assert turned.is_neg()
    torch.testing.assert_close(NORM(plain, torch.ones(8)), -NORM(turned.resolve_neg(), torch.ones(8)))
    for negative in (turned, turned[:1, :1]):
        with pytest.raises(einloom.LayoutError, match="X: .*resolve_neg"):
            NORM(negative, torch.ones(negative.shape[1]))
    with pytest.raises(einloom.LayoutError, match="X: .*storage"):
        NORM(torch.eye(4).to_sparse(), torch.ones(4))


def test_transformations_are_right_or_refused():
    from torch.autograd import forward_ad

    x, g = torch.randn(3, 4, 8), torch.rand(8)
    got = torch.func.vmap(NORM, in_dims=(0, None))(x, g)
    torch.testing.assert_close(got, torch.stack([NORM(row, g) for row in x]))
    with pytest.raises(einloom.GradientError, match="forwards"):
        torch.func.jvp(lambda a: NORM(a, g), (x[0],), (x[1],))
    with forward_ad.dual_level(), pytest.raises(einloom.GradientError, match="forwards"):
        NORM(forward_ad.make_dual(x[0], x[1]), g)


def test_results_written_over_what_a_gradient_needs_are_noticed():
    x = torch.randn(4, 8, requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        NORM(x, torch.ones(8), out=y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(einloom.GradientError, match="`out` for Y requires a gradient"):
        NORM(x.detach(), torch.ones(8), out=torch.empty(4, 8, requires_grad=True))
    with torch.inference_mode():
        NORM(x.detach(), torch.ones(8), out=torch.empty(4, 8))


def test_modules_that_hold_cascades_are_copied_and_saved(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.gain = NORM, torch.nn.Parameter(torch.rand(8))

        def forward(self, x):
            return self.norm(x, self.gain)

    model, x = Model(), torch.randn(4, 8)
    other = copy.deepcopy(model)
    torch.testing.assert_close(other(x), model(x))
    assert other.gain is not model.gain
    again = pickle.loads(pickle.dumps(model.norm))
    torch.testing.assert_close(again(x, model.gain), model(x))


def test_converted_functions_are_copied():
    linear = torch.nn.Linear(8, 8)
    program = einloom.from_torch(linear, (torch.randn(4, 8),))
    other = copy.deepcopy(program)
    with torch.no_grad():
        linear.weight.zero_()
        x = torch.randn(4, 8)
        torch.testing.assert_close(program(x), linear(x))
        torch.testing.assert_close(other(x), other.function(x))
    assert other.function.weight.any() and other.text == program.text


def test_checkpoints_are_left_as_they_are():
    from torch.utils.checkpoint import checkpoint

    weight = torch.randn(8, 8, requires_grad=True)

    def layer(x):
        return torch.softmax(x @ weight, -1)

    def model(x):
        return checkpoint(layer, x, use_reentrant=False).square().sum()

    x = torch.randn(4, 8)
    gradients = []
    for f in (model, torch.compile(model, backend=einloom.torch.backend, options={"rest": "eager"})):
        weight.grad = None
        f(x).backward()
        gradients.append(weight.grad)
    torch.testing.assert_close(*gradients)
