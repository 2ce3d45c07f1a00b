"""Inputs and results of every case in f32, by PyTorch: what the kernels that are measured are checked against."""
import math

import torch
import torch.nn.functional as F

from peers import randn

torch.backends.cuda.matmul.allow_tf32 = False


def matmul(n, way):
    a, b = randn(n, n), randn(n, n)
    left, right = (t.float().t() if w == "t" else t.float() for t, w in zip((a, b), way))
    return {"A": a, "B": b}, left @ right


def rows(what, m, n):
    x, g, label = randn(m, n), randn(n), torch.randint(0, n, (m,), device="cuda")
    if what == "softmax":
        return {"X": x}, torch.softmax(x.float(), -1)
    if what == "rmsnorm":
        return {"X": x, "g": g}, F.rms_norm(x.float(), (n,), g.float(), eps=1e-6)
    return {"X": x, "label": label.int()}, F.cross_entropy(x.float(), label, reduction="none")


def attention(batch, heads, s, d, causal, rivals):
    return by_heads(batch, heads, heads, s, s, d, "causal" if causal else "full")


def keys(heads, m, n, d):
    return by_heads(1, heads, heads, m, n, d, "full")


def variant(what, batch, heads, s, d, window, kv_heads):
    return by_heads(batch, heads, kv_heads if what == "gqa" else heads, s, s, d, what, window)


def by_heads(batch, heads, kv_heads, m, n, d, what, window=0):
    """One head at a time: the scores of all would not fit."""
    q, k, v = randn(batch, heads, m, d), randn(batch, kv_heads, n, d), randn(batch, kv_heads, n, d)
    inputs = {"Q": q, "K": k, "V": v}
    bias = slope = distance = masked = None
    if what == "bias":
        inputs["bias"] = bias = randn(heads, m, n)
    if what == "alibi":
        inputs["slope"] = slope = torch.rand(heads, device="cuda")
    if what in ("causal", "alibi", "window"):
        distance = torch.arange(m, device="cuda")[:, None] - torch.arange(n, device="cuda")
        masked = (distance < 0) | (distance >= window) if what == "window" else distance < 0
    out = torch.empty(batch, heads, m, d, device="cuda")
    for b in range(batch):
        for h in range(heads):
            j = h * kv_heads // heads
            x = q[b, h].float() @ k[b, j].float().t() / math.sqrt(d)
            if what == "softcap":
                x = 50 * torch.tanh(x / 50)
            if bias is not None:
                x += bias[h]
            if slope is not None:
                x -= slope[h] * distance
            if masked is not None:
                x.masked_fill_(masked, -math.inf)
            p = x / x.norm(dim=-1, keepdim=True) if what == "l2" else torch.softmax(x, -1)
            out[b, h] = p @ v[b, j].float()
    return inputs, out


def recurrence(what, batch, heads, t, d, e, chunk=256):
    """In f64, a state at the start of each chunk and the scores inside."""
    if what == "mamba2":
        inputs = {"X": randn(heads, t, e), "a": torch.rand(heads, t, device="cuda"), "B": randn(t, d), "C": randn(t, d)}
        q, k, v, decay = inputs["C"][None], inputs["B"][None], inputs["X"], -inputs["a"].double()
    else:
        inputs = {"Q": randn(batch, heads, t, d), "K": randn(batch, heads, t, d), "V": randn(batch, heads, t, e)}
        q, k, v, decay = inputs["Q"], inputs["K"], inputs["V"], torch.zeros(1, 1, t, device="cuda", dtype=torch.float64)
    scale = 1.0
    if what == "retention":
        inputs["decay"] = torch.rand(heads, device="cuda") / 16
        decay, scale = -inputs["decay"].double()[:, None].expand(heads, t), 1 / math.sqrt(d)
    out, state = torch.empty(v.shape, device="cuda"), 0
    for at in range(0, t, chunk):
        here = slice(at, min(at + chunk, t))
        qc, kc, vc = q[..., here, :].double(), k[..., here, :].double(), v[..., here, :].double()
        passed = decay[..., here].cumsum(-1)
        between = (passed[..., :, None] - passed[..., None, :]).tril()
        scores = ((qc @ kc.mT) * between.exp()).tril()
        y = scores @ vc + (qc * passed.exp()[..., None]) @ state if at else scores @ vc
        out[..., here, :] = (y * scale).float()
        left = (passed[..., -1:] - passed).exp()[..., None]
        added = (kc * left).mT @ vc
        state = passed[..., -1].exp()[..., None, None] * state + added
    return inputs, out
