"""On a GPU: operators take part in CUDA graphs and streams, and compute what eager PyTorch computes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import einloom  # noqa: E402
from einloom.torch import backend, from_torch, operator_of, operators  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "gpt"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "python"))
from model import attention, build  # noqa: E402
from variants import textbook, variants  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def inputs(*shape: int, count: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]


def test_an_operator_is_captured_in_a_graph() -> None:
    made = operator_of(einloom.library.attention_causal)
    q, k, v = inputs(2, 4, 256, 64)
    made(q, k, v)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = made(q, k, v)
    for seed in range(3):
        torch.manual_seed(seed)
        q.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(o, made(q, k, v))


def test_an_operator_runs_in_the_current_stream() -> None:
    made = operator_of(einloom.library.rmsnorm)
    x, g = torch.randn(4096, 4096, device="cuda"), torch.ones(4096, device="cuda")
    want = torch.nn.functional.rms_norm(x + 1, (4096,), g, 1e-6)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        y = made(x + 1, g)
    torch.cuda.current_stream().wait_stream(side)
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-5)


def test_pytorchs_own_checks() -> None:
    made = operator_of(einloom.library.attention_causal)
    torch.library.opcheck(made.op, tuple(t.requires_grad_() for t in inputs(1, 2, 64, 64)))


def test_a_function_from_torch() -> None:
    q, k, v = inputs(2, 4, 512, 64)
    program = from_torch(attention, [q, k, v])
    want = attention(q.double(), k.double(), v.double())
    assert (program(q, k, v) - want).abs().max() < 2e-2 * want.abs().max()


def test_gradients() -> None:
    q, k, v = (t.requires_grad_() for t in inputs(1, 2, 128, 64))
    program = from_torch(attention, [q, k, v])
    got = torch.autograd.grad(program(q, k, v).float().square().sum(), [q, k, v])
    want = torch.autograd.grad(attention(q, k, v).float().square().sum(), [q, k, v])
    for g, w in zip(got, want, strict=True):
        assert (g - w).abs().max() < 3e-2 * w.abs().max()


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_the_gpt(rest: str) -> None:
    torch._dynamo.reset()
    model = build().to("cuda", torch.bfloat16)
    ids = torch.randint(0, 128, (2, 64), device="cuda")
    fast = torch.compile(model, backend=backend, fullgraph=True, dynamic=False, options={"rest": rest})
    with torch.no_grad():
        want = build().to("cuda")(ids)
        assert (fast(ids) - want).abs().max() < 3e-2 * want.abs().max()


@pytest.mark.parametrize("variant", variants(1024), ids=lambda v: v.name)
def test_variants(variant) -> None:
    q, k, v = inputs(1, 2, 1024, 64)
    x = variant.inputs(1, 2, 1024, q.device)
    want = textbook(variant, q.double(), k.double(), v.double(), x, 1 / math.sqrt(64))
    got = einloom.compile(variant.text())(q, k, v, **x)
    assert (got - want).abs().max() < 2e-2 * want.abs().max()


WIDE = """
import torch, einloom
program = einloom.compile("input X[m,n]: i32\\noutput Y: i32\\nY[m] = max(n) X[m,n]\\n")
x = torch.tensor([[1, 2], [3, {value}]], device="cuda")
print(program(x).tolist())
"""


@pytest.mark.parametrize(("value", "printed"), [(2**31 - 1, "[2, 2147483647]"), (2**32 + 1, "")])
def test_integers_of_64_bits_that_do_not_fit_stop_the_device(value: int, printed: str) -> None:
    """In a process of its own, because nothing runs on the device after it."""
    done = subprocess.run([sys.executable, "-c", WIDE.format(value=value)], capture_output=True, text=True)
    assert done.stdout.strip() == printed and (done.returncode == 0) == bool(printed)
    if not printed:
        assert "no 32-bit integer" in done.stdout + done.stderr or "device-side assert" in done.stderr


def test_indices_of_64_bits_are_captured_in_a_graph() -> None:
    made = operator_of(einloom.compile("input X[m,d]: f32, ids[t]: i32\noutput Y: f32\nY[t,d] = exp(X[ids[t],d])\n"))
    x, ids = torch.randn(64, 32, device="cuda"), torch.randint(0, 64, (100,), device="cuda")
    torch.testing.assert_close(made(x, ids), x[ids].exp(), rtol=1e-5, atol=1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = made(x, ids)
    ids.copy_(ids.flip(0))
    graph.replay()
    torch.testing.assert_close(y, x[ids].exp(), rtol=1e-5, atol=1e-6)


def test_kernels_are_made_ahead_of_the_first_call() -> None:
    torch._dynamo.reset()
    seen = {o.name for o in operators()}
    fast = torch.compile(lambda x: torch.softmax(x * 3, -1), backend=backend, dynamic=False, options={"rest": "eager"})
    x = torch.randn(128, 96, device="cuda")
    torch.testing.assert_close(fast(x), torch.softmax(x * 3, -1), rtol=1e-4, atol=1e-6)
    (made,) = [o for o in operators() if o.name not in seen]
    assert made.expected and made.kernel.kernel_count == 1
