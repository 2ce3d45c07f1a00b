"""Others' kernels for the same work, through PyTorch: functions that make calls to time, by rival."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import fa3_fwd_interface as fa3  # the wheel fa3-fwd
except ImportError:
    fa3 = None

try:
    from fla.ops.linear_attn import chunk_linear_attn  # the wheel fla-core
    from fla.ops.retention import chunk_retention
    from fla.ops.simple_gla import chunk_simple_gla
except ImportError:
    chunk_linear_attn = None

BF16 = torch.bfloat16


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=BF16)


def matmul(n, way):
    a, b = randn(n, n), randn(n, n)
    left, right = (t.t() if w == "t" else t for t, w in zip((a, b), way))
    out = torch.empty(n, n, device="cuda", dtype=BF16)
    return {"cublas": lambda: torch.matmul(left, right, out=out)}


def sdpa(backend, q, k, v, **options):
    def call():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, **options)

    return call


def attention(batch, heads, s, d, causal, rivals):
    q, k, v = (randn(batch, heads, s, d) for _ in range(3))
    calls = {
        "cudnn": sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=causal),
        "fa2": sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=causal),
    }
    if fa3:
        rows = [t.transpose(1, 2).contiguous() for t in (q, k, v)]  # their layout: heads beside the head dimension
        calls["fa3"] = lambda: fa3.flash_attn_func(*rows, causal=causal)
    return {name: calls[name] for name in rivals if name in calls}


def rows(what, m, n):
    x, g, label = randn(m, n), randn(n), torch.randint(0, n, (m,), device="cuda")
    out = torch.empty_like(x)
    eager = {
        "softmax": lambda: torch.softmax(x, -1),
        "rmsnorm": lambda: F.rms_norm(x, (n,), g),
        "cross_entropy": lambda: F.cross_entropy(x, label, reduction="none"),
    }
    return {"copy": lambda: out.copy_(x), "torch": eager[what]}


def graphed(call):
    """The same without what Python takes to launch several kernels."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        call()
    return graph.replay


def recurrence(what, batch, heads, t, d, e):
    """Their layout: heads beside the head dimension. Mamba-2 has keys and queries of its own for each head there."""
    if chunk_linear_attn is None:
        return {}
    q, k, v = randn(batch, t, heads, d), randn(batch, t, heads, d), randn(batch, t, heads, e)
    g = -torch.rand(batch, t, heads, device="cuda")
    calls = {
        "linear attention": lambda: chunk_linear_attn(q, k, v, scale=1.0, normalize=False),
        "retention": lambda: chunk_retention(q, k, v),
        "mamba2": lambda: chunk_simple_gla(q, k, v, g=g, scale=1.0),
    }
    return {"fla": graphed(calls[what])}


def keys(*_):
    return {}


def variant(what, batch, heads, s, d, window, kv_heads, flex=False):
    """Those that FlashAttention-3 has, and FlexAttention for the others where that is asked for (it compiles for long)."""
    kv = kv_heads if what == "gqa" else heads
    q, k, v = randn(batch, heads, s, d), randn(batch, kv, s, d), randn(batch, kv, s, d)
    calls = {}
    options = {"softcap": {"softcap": 50.0}, "window": {"causal": True, "window_size": (window - 1, 0)}, "gqa": {}}
    if fa3 and what in options:
        rows = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
        calls["fa3"] = lambda: fa3.flash_attn_func(*rows, **options[what])
    if flex and what in ("softcap", "alibi", "bias", "window"):
        calls["flex"] = flexible(what, q, k, v, window)
    return calls


def flexible(what, q, k, v, window):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    heads, s = q.shape[1], q.shape[2]
    bias = randn(heads, s, s) if what == "bias" else None
    slope = torch.rand(heads, device="cuda")
    scores = {
        "softcap": lambda x, b, h, m, n: 50.0 * torch.tanh(x / 50.0),
        "alibi": lambda x, b, h, m, n: x - slope[h] * (m - n),
        "bias": lambda x, b, h, m, n: x + bias[h, m, n],
        "window": None,
    }
    masks = {"alibi": lambda b, h, m, n: n <= m, "window": lambda b, h, m, n: (n <= m) & (m - n < window)}
    mask = create_block_mask(masks[what], None, None, s, s, device="cuda") if what in masks else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, score_mod=scores[what], block_mask=mask)
