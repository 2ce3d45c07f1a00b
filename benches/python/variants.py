"""FlexAttention's published examples, each in both idioms: `score_mod` and `mask_mod`, and a cascade.

The examples are those of Dong et al., "Flex Attention: A Programming Model for Generating Optimized Attention Kernels",
2024, and of the page that introduced it (relative positions, ALiBi, soft-capping, causal, sliding window, prefix LM,
documents, NATTEN), with the dilated window of Longformer (Beltagy, Peters and Cohan, 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import Tensor

WINDOW, PREFIX, DILATION, CAP, SIDE = 256, 128, 4, 20.0, 6


@dataclass(frozen=True)
class Variant:
    """One kind of attention. `score` and `filter` are what differs in the cascade's text."""

    name: str
    score: str = "S[b,h,m,n]"
    filter: str = ""
    declared: str = ""
    params: dict[str, float] = field(default_factory=dict)
    extra: Callable[[int, int, int, torch.device], dict[str, Tensor]] = lambda b, h, n, device: {}
    score_mod: Callable[..., Any] | None = None
    mask_mod: Callable[..., Any] | None = None
    """Both take `(extra tensors, sizes)` first."""

    def text(self) -> str:
        """The cascade."""
        over = f"(n: {self.filter})" if self.filter else "(n)"
        return "\n".join(
            [
                f"cascade attention_{self.name}",
                "input  Q[b,h,m,d]: bf16, K[b,h,n,d]: bf16, V[b,h,n,e]: bf16" + self.declared,
                "output O: bf16",
                *(f"param  {name} = {value}" for name, value in self.params.items()),
                "",
                "S[b,h,m,n] = sum(d) Q[b,h,m,d] * K[b,h,n,d] / sqrt(D)",
                f"L[b,h,m,n] = {self.score}",
                f"P[b,h,m,n] = exp(L[b,h,m,n] - max{over} L[b,h,m,n])",
                f"O[b,h,m,e] = sum{over} P[b,h,m,n] / (sum{over} P[b,h,m,n]) * V[b,h,n,e]",
                "",
            ]
        )

    def inputs(self, b: int, h: int, n: int, device: torch.device) -> dict[str, Tensor]:
        """What it needs besides queries, keys and values."""
        return self.extra(b, h, n, device)


def _documents(b: int, h: int, n: int, device: torch.device) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    count = max(n // 256, 2)
    ends = torch.rand(b, n, generator=generator).topk(count, dim=1).indices
    starts = torch.zeros(b, n, dtype=torch.int32)
    starts.scatter_(1, ends, 1)
    return {"doc": starts.cumsum(1).to(torch.int32).to(device)}


def _slopes(b: int, h: int, n: int, device: torch.device) -> dict[str, Tensor]:
    return {"slope": torch.exp2(-8.0 * (torch.arange(h, device=device, dtype=torch.float32) + 1) / h)}


def _natten(x: dict[str, Tensor], w: int) -> Callable[..., Any]:
    def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
        qy, qx, ky, kx = q // w, q % w, k // w, k % w
        y, z = qy.clamp(SIDE, w - 1 - SIDE), qx.clamp(SIDE, w - 1 - SIDE)
        return ((y - ky).abs() <= SIDE) & ((z - kx).abs() <= SIDE)

    return mask


def variants(n: int) -> list[Variant]:
    """All variants for `n` positions (NATTEN lays them out as a square)."""
    w = math.isqrt(n)
    line = "floor({0} / {1})"

    def near(q: str, k: str) -> str:
        return f"abs(min(max({q}, {SIDE}), {w - 1 - SIDE}) - {k}) <= {SIDE}"

    rows = near(line.format("m", w), line.format("n", w))
    columns = near(f"(m - {w} * {line.format('m', w)})", f"(n - {w} * {line.format('n', w)})")
    return [
        Variant("full"),
        Variant("causal", filter="n <= m", mask_mod=lambda x, n: lambda b, h, q, k: k <= q),
        Variant(
            "relative_position",
            score="S[b,h,m,n] + (m - n)",
            score_mod=lambda x, n: lambda s, b, h, q, k: s + (q - k),
        ),
        Variant(
            "alibi",
            score="S[b,h,m,n] - slope[h] * (m - n)",
            filter="n <= m",
            declared=", slope[h]: f32",
            extra=_slopes,
            score_mod=lambda x, n: lambda s, b, h, q, k: s - x["slope"][h] * (q - k),
            mask_mod=lambda x, n: lambda b, h, q, k: k <= q,
        ),
        Variant(
            "softcap",
            score="cap * tanh(S[b,h,m,n] / cap)",
            params={"cap": CAP},
            score_mod=lambda x, n: lambda s, b, h, q, k: CAP * torch.tanh(s / CAP),
        ),
        Variant(
            "sliding_window",
            filter=f"n <= m and m - n <= {WINDOW}",
            mask_mod=lambda x, n: lambda b, h, q, k: (k <= q) & (q - k <= WINDOW),
        ),
        Variant(
            "dilated_window",
            filter=f"n <= m and m - n <= {WINDOW} and m - n == {DILATION} * floor((m - n) / {DILATION})",
            mask_mod=lambda x, n: lambda b, h, q, k: (k <= q) & (q - k <= WINDOW) & ((q - k) % DILATION == 0),
        ),
        Variant(
            "prefix_lm",
            filter=f"n <= m or n < {PREFIX}",
            mask_mod=lambda x, n: lambda b, h, q, k: (k <= q) | (k < PREFIX),
        ),
        Variant(
            "document",
            filter="n <= m and doc[b,m] == doc[b,n]",
            declared=", doc[b,m]: i32\nindex  m, n in N",
            extra=_documents,
            mask_mod=lambda x, n: lambda b, h, q, k: (k <= q) & (x["doc"][b, q] == x["doc"][b, k]),
        ),
        Variant("natten", filter=f"{rows} and {columns}", mask_mod=lambda x, n: _natten(x, math.isqrt(n))),
    ]


def textbook(v: Variant, q: Tensor, k: Tensor, value: Tensor, x: dict[str, Tensor], scale: float) -> Tensor:
    """Attention with all scores in memory, in the number type of its inputs."""
    b, h, n, _ = q.shape
    at = [torch.arange(s, device=q.device) for s in (b, h, n, n)]
    grid = [a.view([-1 if j == i else 1 for j in range(4)]) for i, a in enumerate(at)]
    scores = q @ k.transpose(-2, -1) * scale
    if v.score_mod is not None:
        scores = v.score_mod(x, n)(scores, *grid)
    if v.mask_mod is not None:
        scores = torch.where(v.mask_mod(x, n)(*grid), scores, -math.inf)
    return torch.softmax(scores, -1) @ value
