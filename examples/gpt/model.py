"""A small GPT, as a textbook writes it: attention, norms and loss in plain PyTorch, nothing fused by hand.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; RMSNorm of Zhang and Sennrich, 2019. The
weights are random, made by a seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes of a model. The default is small enough for a test."""

    vocabulary: int = 128
    context: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 64

    @staticmethod
    def gpt2() -> Config:
        """The sizes of GPT-2 with 124 million parameters."""
        return Config(vocabulary=50304, context=1024, layers=12, heads=12, width=768)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of `[batch, heads, positions, features]`."""
    positions = torch.arange(q.shape[2], device=q.device)
    scores = torch.einsum("bhmd,bhnd->bhmn", q, k) / math.sqrt(q.shape[-1])
    scores = torch.where(positions[None, :] <= positions[:, None], scores, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("bhmn,bhne->bhme", weights.to(v.dtype), v)


class RmsNorm(nn.Module):
    """`x / sqrt(mean(x²) + eps) · gain`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        squares = (x.float() * x.float()).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(squares + 1e-6) * self.gain).to(x.dtype)


class LayerNorm(nn.Module):
    """`(x - mean) / sqrt(var + eps) · gain + shift`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        centred = y - y.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return (centred / torch.sqrt(variance + 1e-5) * self.gain + self.shift).to(x.dtype)


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self, config: Config, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.heads = config.heads
        self.attend = attend
        self.before_attention = RmsNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.before_mlp = LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        qkv = self.qkv(self.before_attention(x))
        q, k, v = qkv.view(batch, positions, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = self.attend(q, k, v).transpose(1, 2).reshape(batch, positions, width)
        x = x + self.out(mixed)
        hidden = torch.nn.functional.gelu(self.up(self.before_mlp(x)))
        return x + self.down(hidden)


class Gpt(nn.Module):
    """The model. Gives logits, or the mean cross-entropy where targets are given."""

    def __init__(self, config: Config, attend: Callable[..., Tensor] = attention) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config, attend) for _ in range(config.layers))
        self.last = LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.last(x))
        if targets is None:
            return logits
        return loss(logits, targets)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy: `log Σ exp(x) - x[target]`."""
    x = logits.float()
    largest = x.amax(-1, keepdim=True)
    normaliser = torch.log(torch.exp(x - largest).sum(-1)) + largest.squeeze(-1)
    chosen = x.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (normaliser - chosen).mean()


def weights(config: Config, seed: int = 0) -> dict[str, Tensor]:
    """The weights of a seed, by name."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, like in Gpt(config).state_dict().items():
        if like.dim() == 1:
            out[name] = torch.ones_like(like) if name.endswith("gain") else torch.zeros_like(like)
            continue
        deviation = 0.02 if name.startswith(("tokens", "places")) else like.shape[1] ** -0.5
        out[name] = torch.randn(like.shape, generator=generator) * deviation
    return out


def save(path: Path, config: Config = Config(), seed: int = 0) -> None:
    """Writes the weights of a seed."""
    save_file(weights(config, seed), path)


def build(
    config: Config = Config(), seed: int = 0, path: Path | None = None, attend: Callable[..., Tensor] = attention
) -> Gpt:
    """The model with the weights of a seed, or of a file."""
    model = Gpt(config, attend)
    model.load_state_dict(weights(config, seed) if path is None else load_file(path))
    return model
