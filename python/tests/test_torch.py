"""Calls with PyTorch's tensors. What needs a GPU says that it is skipped where there is none."""

from __future__ import annotations

import gc

import pytest
from conftest import attention

import einloom

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))]
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def qkv(device, m=64, n=128, d=64, e=64, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, 3, m, d), (2, 3, n, d), (2, 3, n, e)
    return [torch.randn(s, generator=generator).to(dtype).to(device) for s in shapes]


def expected(q, k, v):
    return torch.from_numpy(attention(*(x.double().cpu().numpy() for x in (q, k, v))))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, atol", [(torch.float32, 5e-3), (torch.bfloat16, 2e-2), (torch.float16, 5e-3)])
def test_results_are_tensors_of_the_inputs_type_on_their_device(device, dtype, atol):
    q, k, v = qkv(device, dtype=dtype)
    o = einloom.library.attention(q, k, v)
    assert type(o) is torch.Tensor and o.dtype == dtype and o.device == q.device and o.is_contiguous()
    torch.testing.assert_close(o.double().cpu(), expected(q, k, v), atol=atol, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_used_where_they_are(device):
    b, t, h, d = 2, 96, 3, 64
    fused = torch.randn(b, t, 3 * h * d, device=device).to(torch.bfloat16)
    q, k, v = (x.view(b, t, h, d).transpose(1, 2) for x in fused.chunk(3, dim=-1))
    before = fused.clone()
    o = einloom.library.attention(q, k, v)
    torch.testing.assert_close(o.double().cpu(), expected(q, k, v), atol=2e-2, rtol=0)
    out = torch.zeros(b, t, h, d, device=device, dtype=torch.bfloat16)
    assert einloom.library.attention(q, k, v, out=out.transpose(1, 2)) is not None
    torch.testing.assert_close(out.transpose(1, 2), o)
    assert torch.equal(fused, before)


@pytest.mark.parametrize("device", DEVICES)
def test_expanded_and_unaligned_inputs(device):
    q, _, _ = qkv(device)
    shared = torch.randn(2, 1, 128, 64, device=device)
    k = shared.expand(2, 3, 128, 64)
    v = torch.randn(2 * 3 * 128 * 64 + 1, device=device)[1:].view(2, 3, 128, 64)
    o = einloom.library.attention(q, k, v)
    torch.testing.assert_close(o.double().cpu(), expected(q, k, v), atol=5e-3, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_change(device):
    program = einloom.compile(einloom.library.text("attention"))
    for n in (64, 128, 192, 65, 256, 1, 130):
        q, k, v = qkv(device, n=n, dtype=torch.bfloat16, seed=n)
        torch.testing.assert_close(program(q, k, v).double().cpu(), expected(q, k, v), atol=2e-2, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_programs_of_several_kernels_and_gathers(device):
    program = einloom.compile(
        "cascade c\ninput E[v,d]: f32, ids[t]: i32\noutput O: f32, M: f32\n"
        "X[t,d] = E[ids[t],d]\nM[d] = sum(t) X[t,d] / T\nO[t,d] = X[t,d] - M[d]\n"
    )
    table = torch.randn(50, 33, device=device)
    for ids in (torch.randint(0, 50, (20,), device=device), torch.randint(0, 50, (20,), device=device).int()):
        o, m = program(table, ids)
        x = table[ids.long()]
        torch.testing.assert_close(m, x.mean(0))
        torch.testing.assert_close(o, x - x.mean(0))


def test_gradients_are_not_lost_in_silence():
    x = torch.randn(4, 8, requires_grad=True)
    with torch.no_grad():
        einloom.library.softmax(x)
    einloom.library.softmax(x.detach())


def test_parameters_and_subclasses_are_tensors():
    class Mine(torch.Tensor):
        pass

    x = torch.randn(4, 8)
    with torch.no_grad():
        for other in (torch.nn.Parameter(x), x.as_subclass(Mine)):
            torch.testing.assert_close(torch.as_tensor(einloom.library.softmax(other)).as_subclass(torch.Tensor), x.softmax(-1))


def test_results_live_as_long_as_they_are_used():
    x = torch.randn(300, 300)
    kept = [einloom.library.softmax(x + k) for k in range(20)]
    gc.collect()
    for k, y in enumerate(kept):
        torch.testing.assert_close(y, (x + k).softmax(-1))


def test_inputs_on_several_devices_are_refused():
    q, k, v = qkv("cpu")
    with pytest.raises(einloom.EinloomError, match="K"):
        einloom.library.attention(q, k.to("meta"), v)


@gpu
def test_inputs_on_cpu_and_gpu_are_refused():
    q, k, v = qkv("cuda")
    with pytest.raises(einloom.DeviceError, match="K is on cpu, but Q is on cuda:0"):
        einloom.library.attention(q, k.cpu(), v)


@gpu
def test_work_is_started_on_the_current_stream():
    q, k, v = qkv("cuda", m=2048, n=2048, dtype=torch.bfloat16)
    einloom.library.attention(q, k, v)
    stream = torch.cuda.Stream()
    for _ in range(5):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late = q * 2
            o = einloom.library.attention(late, k, v)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(o.double().cpu(), expected(q * 2, k, v), atol=2e-2, rtol=0)


@gpu
def test_calls_are_captured_in_cuda_graphs():
    q, k, v = qkv("cuda", m=512, n=512, dtype=torch.bfloat16)
    einloom.library.attention(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = einloom.library.attention(q, k, v)
    for seed in (1, 2):
        for mine, new in zip((q, k, v), qkv("cuda", m=512, n=512, dtype=torch.bfloat16, seed=seed)):
            mine.copy_(new)
        graph.replay()
        torch.testing.assert_close(o.double().cpu(), expected(q, k, v), atol=2e-2, rtol=0)


@gpu
def test_gathers_outside_are_told_by_a_later_call():
    program = einloom.compile("cascade c\ninput E[v,d]: f32, ids[t]: i32\noutput O: f32\nO[t,d] = E[ids[t],d]\n")
    table = torch.randn(5, 8, device="cuda")
    program(table, torch.tensor([0, 4], device="cuda"))
    program(table, torch.tensor([0, 5], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(einloom.OutOfRange, match="E"):
        program(table, torch.tensor([0, 1], device="cuda"))
    torch.testing.assert_close(program(table, torch.tensor([3], device="cuda")), table[3:4])


@gpu
def test_sizes_of_a_class_share_code_on_the_gpu():
    program = einloom.compile(einloom.library.text("attention"))
    said = []
    for n in (1024, 2048, 4096, 3072):
        q, k, v = qkv("cuda", m=1024, n=n, dtype=torch.bfloat16, seed=n)
        torch.testing.assert_close(program(q, k, v).double().cpu(), expected(q, k, v), atol=2e-2, rtol=0)
        said.append(program.last_plan().code)
    assert said[0] == "compiled for these sizes" and "size class" in said[1]
    assert said[2:] == ["shared with other sizes"] * 2
