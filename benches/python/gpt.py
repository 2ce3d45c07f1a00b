"""Tokens per second of a GPT in textbook PyTorch, compiled by Einloom, beside eager, `torch.compile` and SDPA.

    python benches/python/gpt.py                        on the GPU: the sizes of GPT-2, bf16, 8 × 1024 tokens
    python benches/python/gpt.py --device cpu --small   on the processor

Forward passes that end in the loss. Times are medians over interleaved rounds. The error is that of the logits, relative
to their largest, against the same weights in f32 eager.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "gpt"))
import einloom.torch  # noqa: E402
from model import Config, Gpt, build  # noqa: E402


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own fused attention."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def seconds(f: Callable[[], Any], device: torch.device) -> float:
    """One call, until its result is there."""
    start = time.perf_counter()
    f()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def contenders(config: Config, device: torch.device, dtype: torch.dtype, rest: str | None) -> dict[str, Any]:
    """The same weights in four ways."""

    def model(attend: Any = None) -> Gpt:
        made = build(config, **({"attend": attend} if attend else {}))
        return made.to(device, dtype).eval().requires_grad_(False)

    plain = model()
    options = {"rest": rest} if rest else {}
    return {
        "eager": plain,
        "torch.compile": torch.compile(model(), fullgraph=True, dynamic=False),
        "torch.compile, SDPA": torch.compile(model(sdpa), fullgraph=True, dynamic=False),
        "einloom": torch.compile(
            model(), backend=einloom.torch.backend, fullgraph=True, dynamic=False, options=options
        ),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--small", action="store_true", help="a model of 2 layers, 64 wide")
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--rest", help="what runs the other operations: inductor or eager")
    given = arguments.parse_args()
    device = torch.device(given.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = Config() if given.small else Config.gpt2()
    generator = torch.Generator().manual_seed(1)
    shape = (given.batch, config.context)
    ids, targets = (torch.randint(0, config.vocabulary, shape, generator=generator).to(device) for _ in range(2))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {dtype}, {config}, {given.batch} × {config.context} tokens, PyTorch {torch.__version__}\n")
    torch._dynamo.config.recompile_limit = 64
    models = contenders(config, device, dtype, given.rest)
    rows: dict[str, tuple[float, float]] = {}
    with torch.no_grad():
        reference = build(config).to(device)(ids[:1])
        for label, model in models.items():
            start = time.perf_counter()
            loss = model(ids, targets).item()
            made = time.perf_counter() - start
            rows[label] = (loss, made)
        errors = {
            n: ((m(ids[:1]).float() - reference).abs().max() / reference.abs().max()).item() for n, m in models.items()
        }
        times: dict[str, list[float]] = {n: [] for n in models}
        for k in range(given.rounds + 3):
            for label, model in models.items():
                t = seconds(lambda model=model: model(ids, targets), device)
                if k >= 3:
                    times[label].append(t)
    print("| | tokens/s | ms | first call s | loss | error of logits |")
    print("|---|---|---|---|---|---|")
    for label, (loss, made) in rows.items():
        t = statistics.median(times[label])
        print(f"| {label} | {ids.numel() / t:,.0f} | {t * 1e3:.2f} | {made:.1f} | {loss:.5f} | {errors[label]:.1e} |")
    print(f"\n{einloom.torch.reports()[0]}")


if __name__ == "__main__":
    main()
