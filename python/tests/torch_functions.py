"""PyTorch functions that become cascades. Every function has a text in `torch_texts/`, and example inputs here."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {}


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(dtype)


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    """Uniform integers below `high`."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def case(*inputs: Tensor) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function with its example inputs."""

    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        CASES[f.__name__] = (f, inputs)
        return f

    return add


QKV = tuple(normal(2, 3, 8, 4, seed=s) for s in range(3))


@case(*QKV)
def attention(q, k, v):
    scores = torch.einsum("bhmd,bhnd->bhmn", q, k) / math.sqrt(q.shape[-1])
    p = torch.softmax(scores, dim=-1)
    return torch.einsum("bhmn,bhne->bhme", p, v)


@case(*QKV)
def attention_by_hand(q, k, v):
    scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
    mask = torch.tril(torch.ones(q.shape[2], k.shape[2])).view(1, 1, q.shape[2], k.shape[2])
    scores = scores.masked_fill(mask == 0, float("-inf"))
    scores = scores - scores.max(dim=-1, keepdim=True).values
    p = scores.exp()
    p /= p.sum(dim=-1, keepdim=True)
    return p @ v


@case(*QKV)
def attention_of_the_library(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(*QKV)
def attention_window(q, k, v):
    i = torch.arange(q.shape[2])
    near = (i[:, None] - i[None, :]).abs() <= 2
    scores = torch.where(near, q @ k.mT, -torch.inf)
    return torch.tanh(scores / 5).softmax(-1) @ v


@case(normal(2, 4, 6, 8), normal(2, 2, 6, 8, seed=1), normal(2, 2, 6, 8, seed=2))
def attention_grouped(q, k, v):
    k = k.repeat_interleave(2, dim=1)
    v = v[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)


@case(normal(2, 6, 8), normal(8, 24, seed=1), normal(8, 8, seed=2), normal(8, seed=3), normal(8, seed=4))
def block(x, qkv, out, gain, shift):
    b, t, c = x.shape
    h = F.layer_norm(x, (c,), gain, shift)
    q, k, v = (h @ qkv).split(c, dim=2)
    q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in (q, k, v))
    p = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(c // 4), -1)
    y = (p @ v).transpose(1, 2).contiguous().view(b, t, c)
    return x + y @ out


@case(normal(2, 5, 8), normal(11, 8, seed=1), integers(11, 2, 5))
def cross_entropy(x, w, label):
    logits = x @ w.t()
    return F.cross_entropy(logits.view(-1, logits.size(-1)), label.view(-1))


@case(normal(5, 8), normal(8, seed=1), normal(8, seed=2))
def layer_norm_by_hand(x, gain, shift):
    mu = x.mean(-1, keepdim=True)
    variance = ((x - mu) ** 2).mean(-1, keepdim=True)
    return (x - mu) / torch.sqrt(variance + 1e-5) * gain + shift


@case(normal(5, 8), normal(8, seed=1))
def rms_norm(x, gain):
    return F.rms_norm(x, (8,), gain, 1e-6)


@case(integers(9, 2, 5), normal(9, 4), normal(7, 4, seed=1))
def embedding(ids, table, places):
    x = table[ids] + places[: ids.shape[1]]
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


@case(normal(2, 3, 5, 8))
def rotary(x):
    b, h, n, d = x.shape
    frequency = 1.0 / (10000 ** (torch.arange(0, d, 2) / d))
    angle = torch.arange(n)[:, None] * frequency[None, :]
    angle = torch.cat([angle, angle], -1)
    low, high = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-high, low], -1) * angle.sin()


@case(normal(5, 3))
def distances(x):
    d = ((x[:, None] - x[None]) ** 2).sum(-1)
    return torch.logsumexp(-d, 1)


@case(normal(4, 4))
def with_itself_transposed(x):
    return x * x.T + x.sum(0) - x.cumsum(1)


@case(normal(4, 6))
def statistics(x):
    values, positions = x.max(-1)
    return x.std(-1), x.var(0), F.normalize(x, dim=-1), values, positions, x.abs().amax(), (x > 0).any(1)


@case(normal(4, 6))
def moved(x):
    return F.pad(x, (1, 2)), x.roll(1, 0), x.flip(1), x.reshape(3, 8), x[1:, ::2], torch.stack([x, -x], 1)


@case(normal(2, 3, 9), normal(5, 3, 3, seed=1))
def convolution(x, w):
    return F.conv1d(x, w, padding=1)


@case(normal(4, 6), normal(6, 8, seed=1), normal(8, 6, seed=2))
def feed_forward(x, up, down):
    return F.gelu(x @ up, approximate="tanh") @ down


@case(normal(4, 6), integers(6, 4, 3), integers(4, 5))
def gathers(x, at, rows):
    return x.gather(1, at), x[rows], x[rows, rows], torch.take_along_dim(x, at, 1), x.index_select(0, rows)


@case(normal(3, 5), normal(3, 5, seed=1), integers(3, 3, 5))
def elements(x, y, n):
    a = torch.where((x > y) & ~(n == 1), x.clamp(-1, 1), y.abs().sqrt())
    b = F.softplus(x) + F.leaky_relu(y) + F.silu(x) - F.elu(y)
    return a, b, torch.floor_divide(n, 2), n % 2 == 0, torch.maximum(x, y).pow(3), (x * 4).to(torch.int32)
