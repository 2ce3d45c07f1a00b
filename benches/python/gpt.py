"""Tokens per second of a GPT in textbook PyTorch, compiled by Einloom, beside eager, `torch.compile` and SDPA.

    python benches/python/gpt.py                        on the GPU: the sizes of GPT-2, bf16, 8 × 1024 tokens
    python benches/python/gpt.py --device cpu --small   on the processor
    python benches/python/gpt.py --only "einloom" --limit 100

Forward passes that end in the loss. Each row is a process of its own and printed as soon as it is done; one that takes longer
than `--limit` says so and is given up. Times are medians over rounds. The error is that of the logits, relative to their
largest, against the same weights in f32 eager.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "gpt"))
from model import Config, Gpt, build  # noqa: E402

NAMES = ("eager", "eager, SDPA", "torch.compile", "torch.compile, SDPA", "einloom", "einloom, rest eager")


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


def contender(name: str, config: Config, device: torch.device, dtype: torch.dtype) -> Any:
    """The same weights, run in one of the ways."""
    attend: dict[str, Any] = {"attend": sdpa} if "SDPA" in name else {}
    made: Gpt = build(config, **attend).to(device, dtype).eval().requires_grad_(False)
    if name.startswith("eager"):
        return made
    if name.startswith("torch.compile"):
        return torch.compile(made, fullgraph=True, dynamic=False)
    import einloom.torch

    options = {"rest": "eager" if "eager" in name else "inductor"}
    return torch.compile(made, backend=einloom.torch.backend, fullgraph=True, dynamic=False, options=options)


def measure(name: str, given: argparse.Namespace) -> None:
    """Prints what is known of one row, as JSON: its times first, and then its error."""
    device = torch.device(given.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = sizes(given)
    generator = torch.Generator().manual_seed(1)
    shape = (given.batch, config.context)
    ids, targets = (torch.randint(0, config.vocabulary, shape, generator=generator).to(device) for _ in range(2))
    torch._dynamo.config.recompile_limit = 64
    with torch.no_grad():
        model = contender(name, config, device, dtype)
        row: dict[str, Any] = {"first": (start := time.perf_counter())}
        row["loss"] = model(ids, targets).item()
        row["first"] = time.perf_counter() - start
        times = [seconds(lambda: model(ids, targets), device) for _ in range(given.rounds + 3)][3:]
        row["seconds"] = statistics.median(times)
        print(json.dumps(row), flush=True)
        reference = build(config).to(device)(ids[:1])
        row["error"] = ((model(ids[:1]).float() - reference).abs().max() / reference.abs().max()).item()
        print(json.dumps(row), flush=True)
    if name.startswith("einloom"):
        print(einloom_report(), file=sys.stderr)


def einloom_report() -> str:
    """Which regions were taken in the graph that ends in the loss."""
    import einloom.torch

    return str(einloom.torch.reports()[0])


def sizes(given: argparse.Namespace) -> Config:
    """The model's."""
    config = Config() if given.small else Config.gpt2()
    if given.layers:
        config = Config(config.vocabulary, config.context, given.layers, config.heads, config.width)
    return config


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--small", action="store_true", help="a model of 2 layers, 64 wide")
    arguments.add_argument("--layers", type=int, help="another number of layers")
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--limit", type=float, default=180, help="seconds that a row may take")
    arguments.add_argument("--only", action="append", choices=NAMES, help="rows; may be given several times")
    arguments.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        return measure(given.one, given)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    config, dtype = sizes(given), "bf16" if given.device == "cuda" else "f32"
    print(f"{name}, {dtype}, {config}, {given.batch} × {config.context} tokens, PyTorch {torch.__version__}\n")
    print("| | tokens/s | ms | first call s | loss | error of logits |")
    print("|---|---|---|---|---|---|", flush=True)
    reports: dict[str, str] = {}
    for label in given.only or NAMES:
        rows, said, why = run(label, given.limit)
        reports[label] = said
        if not rows:
            print(f"| {label} | {why} |", flush=True)
            continue
        t, error = rows[-1]["seconds"], f"{rows[-1]['error']:.1e}" if "error" in rows[-1] else why
        rate = given.batch * config.context / t
        print(
            f"| {label} | {rate:,.0f} | {t * 1e3:.2f} | {rows[-1]['first']:.1f} | {rows[-1]['loss']:.5f} | {error} |",
            flush=True,
        )
    if "einloom" in reports:
        print(f"\n{reports['einloom']}")


def run(label: str, limit: float) -> tuple[list[dict[str, float]], str, str]:
    """One row in a process of its own: what it printed, what it said, and how it ended if that was not well."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", label]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        out, said = done.stdout, done.stderr
        why = "" if done.returncode == 0 else f"failed: {(said.strip().splitlines() or ['?'])[-1][:200]}"
    except subprocess.TimeoutExpired as e:
        out, said = (s.decode() if isinstance(s, bytes) else s or "" for s in (e.stdout, e.stderr))
        why = f"more than {limit:g} s: given up"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], said, why


if __name__ == "__main__":
    main()
