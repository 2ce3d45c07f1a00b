"""`torch.compile(model, backend="einloom")`: which regions are taken, what they compute, and what is left."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from einloom.torch import backend, operators, reports  # noqa: E402
from einloom.torch.regions import Partitioner  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "gpt"))
from model import Config, build, save  # noqa: E402

EAGER = {"rest": "eager"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(f: Any, **options: Any) -> Any:
    return torch.compile(f, backend=backend, fullgraph=True, dynamic=False, options={**EAGER, **options})


def tokens(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 128, (2, 64), generator=torch.Generator().manual_seed(seed))


def taken() -> list[str]:
    return [o.name.rpartition("_")[0] for o in reports()[-1].operators]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_a_small_gpt_equals_eager(dtype: torch.dtype, tolerance: float) -> None:
    model = build().to(dtype)
    ids = tokens()
    fast = compiled(model)
    with torch.no_grad():
        want, got = model(ids), fast(ids)
        assert (got - want).abs().max() <= tolerance * want.abs().max()
        assert {"RmsNorm", "attention", "LayerNorm"} <= set(taken())
        torch.testing.assert_close(fast(ids, tokens(1)), model(ids, tokens(1)), rtol=1e-3, atol=1e-4)
    # The loss is in a region, by itself or with the product that its scores are.
    assert any("targets" in text and "log(sum(" in text for text in reports()[-1].texts)


def test_weights_go_through_a_file(tmp_path: Path) -> None:
    save(tmp_path / "gpt.safetensors", seed=3)
    with torch.no_grad():
        got = compiled(build(path=tmp_path / "gpt.safetensors"))(tokens())
        torch.testing.assert_close(got, build(seed=3)(tokens()), rtol=1e-4, atol=1e-5)


def test_equal_layers_are_one_operator() -> None:
    model = build(Config(layers=4))
    with torch.no_grad():
        compiled(model)(tokens())
    assert taken().count("attention") == 4
    assert len({o.name for o in reports()[-1].operators if o.name.startswith("attention")}) == 1


def test_equal_layers_are_grown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(Config(layers=6))
    grown: list[Any] = []
    remember = Partitioner._remember
    monkeypatch.setattr(Partitioner, "_remember", lambda self, *a: (grown.append(a), remember(self, *a)))
    with torch.no_grad():
        got = compiled(model)(tokens())
        torch.testing.assert_close(got, model(tokens()), rtol=1e-4, atol=1e-5)
    as_grown = [(r.cascade.text, sorted(n.name for n in r.nodes)) for r in reports()[-1].regions]
    few = len(grown)
    torch._dynamo.reset()
    monkeypatch.setattr(Partitioner, "_again", lambda self, seed: False)
    with torch.no_grad():
        compiled(model)(tokens())
    assert [(r.cascade.text, sorted(n.name for n in r.nodes)) for r in reports()[-1].regions] == as_grown
    # The first layers, the last one and what is after them differ from those between.
    assert len(as_grown) == len(grown) - few and few < len(as_grown) - 4


def test_kernels_are_made_ahead_of_the_first_call() -> None:
    def f(x, y):
        return torch.softmax((x * y).transpose(0, 1), -1)

    seen = {o.name for o in operators()}
    fast = torch.compile(f, backend=backend, dynamic=False, options=EAGER)
    fast(torch.randn(48, 80), torch.randn(48, 80))
    (made,) = [o for o in operators() if o.name not in seen]
    assert len(made.expected) == 1 and not made.awaited
    assert made.kernel.kernel_count == 1
    x = torch.randn(48, 160)[:, ::2]
    torch.testing.assert_close(fast(x, x), f(x, x))
    torch.testing.assert_close(made(x, x), f(x, x))
    made.kernel.prepare([("float32", [3, 5], [5, 1], 0), ("float32", [3, 5], [5, 1], 4)], None)
    before = made.kernel.kernel_count
    store = torch.randn(16)
    made(torch.randn(3, 5), store[1:].view(3, 5))
    assert made.kernel.kernel_count == before
    with pytest.raises(ValueError, match="no array"):
        made.kernel.prepare([("complex64", [3], [1], 0)], None)


def test_training_gets_the_gradient_of_eager() -> None:
    model = build()
    ids, targets = tokens(), tokens(1)
    model(ids, targets).backward()
    want = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    compiled(model)(ids, targets).backward()
    for name, p in model.named_parameters():
        assert (p.grad - want[name]).abs().max() <= 1e-5 * want[name].abs().max() + 1e-9, name
    assert any(o.backward and "reference path" in o.report for o in operators())


COMPILER = any(shutil.which(c) for c in ("g++", "clang++", "c++"))


@pytest.mark.skipif(not COMPILER, reason="inductor needs a C++ compiler")
def test_training_through_inductor() -> None:
    """The backward graph is traced by AOTAutograd, where the operators' own backward operators stand."""
    norm = torch.nn.Sequential(torch.nn.Linear(8, 8), _Norm(8))
    x = torch.randn(4, 8)
    want = torch.autograd.grad(norm(x).square().sum(), list(norm.parameters()))
    fast = torch.compile(norm, backend=backend, fullgraph=True, dynamic=False, options={"rest": "inductor"})
    got = torch.autograd.grad(fast(x).square().sum(), list(norm.parameters()))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
    assert reports()[-1].rest == "inductor"


class _Norm(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.gain


def test_what_is_left_has_a_reason_and_a_place() -> None:
    def f(x, w):
        y = torch.softmax(x, -1).sort(-1).values
        return y @ w

    x, w = torch.randn(64, 64), torch.randn(64, 64)
    torch.testing.assert_close(compiled(f)(x, w), f(x, w), rtol=1e-4, atol=1e-5)
    left = {r.what: r for r in reports()[-1].refusals}
    assert "no definition" in left["aten.sort.default"].reason
    assert "left to the library" in left["aten.matmul.default"].reason
    assert "test_torch_backend.py" in (left["aten.sort.default"].place or "")


def test_regions_do_not_need_each_other_in_a_circle() -> None:
    def f(x, w):
        y = torch.softmax(x, -1)
        z = (y @ w).sort(-1).values
        return torch.softmax(y + z, -1) * y

    x, w = torch.randn(32, 32), torch.randn(32, 32)
    torch.testing.assert_close(compiled(f)(x, w), f(x, w), rtol=1e-4, atol=1e-5)
    assert len(reports()[-1].regions) == 2


def test_a_widened_copy_joins_once_all_that_reads_it_has() -> None:
    def loss(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        largest = wide.amax(-1, keepdim=True)
        normaliser = torch.log(torch.exp(wide - largest).sum(-1)) + largest.squeeze(-1)
        return normaliser - wide.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    x, targets = torch.randn(4, 64, 1000).to(torch.bfloat16), torch.randint(0, 1000, (4, 64))
    torch.testing.assert_close(compiled(loss)(x, targets), loss(x, targets), rtol=1e-5, atol=1e-5)
    read = [node.meta["val"].dtype for node in reports()[-1].regions[0].inputs]
    assert torch.bfloat16 in read and torch.float32 not in read


def test_operations_with_several_results() -> None:
    def f(x):
        largest, where = x.max(-1, keepdim=True)
        p = (x - largest).exp()
        return p / p.sum(-1, keepdim=True), where

    x = torch.randn(16, 64)
    torch.testing.assert_close(compiled(f)(x), f(x))
    assert len(reports()[-1].regions) == 1


def test_in_place_operations_on_values_of_the_graph_are_functional() -> None:
    def f(x):
        y = x.exp()
        y /= y.sum(-1, keepdim=True)
        y.mul_(2)
        return y

    x = torch.randn(8, 8)
    torch.testing.assert_close(compiled(f)(x), f(x))
    assert len(reports()[-1].regions) == 1


def test_writing_to_an_input_keeps_the_graph_whole() -> None:
    def f(x):
        x.add_(1)
        return torch.softmax(x, -1)

    a, b = torch.zeros(4, 4), torch.zeros(4, 4)
    torch.testing.assert_close(compiled(f)(a), f(b))
    assert torch.equal(a, b)
    assert not reports()[-1].regions
    assert "writes to a tensor" in reports()[-1].refusals[0].reason


@pytest.mark.parametrize("rest", ["eager", "inductor"] if COMPILER else ["eager"])
def test_every_size_is_taken(rest: str) -> None:
    def f(x, y):
        return torch.softmax(x @ y, -1) @ y.T

    fast = torch.compile(f, backend=backend, options={"rest": rest})
    for n in (64, 96, 128, 96):
        x, y = torch.randn(n, 8), torch.randn(8, n)
        torch.testing.assert_close(fast(x, y), f(x, y), rtol=1e-4, atol=1e-5)
        assert len(reports()[-1].regions) == 1


def test_a_part_without_gradients_keeps_the_graph_whole() -> None:
    def f(x):
        with torch.no_grad():
            weights = torch.softmax(x, -1)
        return weights * x

    x = torch.randn(32, 32, requires_grad=True)
    (want,) = torch.autograd.grad(f(x).sum(), x)
    (got,) = torch.autograd.grad(compiled(f)(x).sum(), x)
    torch.testing.assert_close(got, want)
    assert "records no gradients" in reports()[-1].refusals[0].reason
    torch.testing.assert_close(compiled(f)(x.detach()), f(x.detach()))
    assert len(reports()[-1].regions) == 1


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside: bool) -> None:
    model, ids, targets = build(), tokens(), tokens(1)

    def f():
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            return model(ids, targets)

    with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
        want, got = f(), torch.compile(f, backend=backend, options=EAGER)()
    assert abs(got - want) < 1e-2 and got.dtype == want.dtype
    got.backward()
    grad = model.blocks[0].qkv.weight.grad
    assert reports()[-1].regions and grad is not None and grad.isfinite().all()


def test_the_log_tells_what_was_taken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EINLOOM_LOG", "fusion")
    with torch.no_grad():
        compiled(build())(tokens())
    told = capsys.readouterr().err
    assert "took attention_" in told
    assert "weights = torch.exp(scores - scores.amax(-1, keepdim=True))" in told
    assert f"{len(reports()[-1].regions)} regions" in told


def test_options_are_checked() -> None:
    with pytest.raises(Exception, match="rest is 'elsewhere'"):
        compiled(lambda x: x + 1, rest="elsewhere")(torch.ones(2))
    for options in ({"rset": "eager"}, {"rest": "eager", "max_autotune": True}):
        name = next(n for n in options if n != "rest")
        with pytest.raises(Exception, match=f"the backend has no option '{name}'; it has 'rest'"):
            torch.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))
    # A mode is inductor's.
    with pytest.raises(Exception, match="the backend has no option 'mode'"):
        torch.compile(lambda x: x + 1, backend=backend, mode="max-autotune")(torch.ones(2))
    with pytest.raises(ValueError, match="the backend has no option 'fast'"):
        backend(torch.fx.symbolic_trace(torch.nn.Identity()), [torch.ones(2)], fast=True)


def _installed() -> bool:
    return any(e.name == "einloom" for e in metadata.entry_points(group="torch_dynamo_backends"))


@pytest.mark.skipif(not _installed(), reason="the package is not installed: its entry points are not known")
def test_the_backend_has_a_name() -> None:
    x = torch.randn(4, 4)
    fast = torch.compile(lambda x: torch.softmax(x, -1), backend="einloom", options=EAGER)
    torch.testing.assert_close(fast(x), torch.softmax(x, -1))
