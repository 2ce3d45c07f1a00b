"""Where the first call of a compiled GPT spends its time.

    python benches/python/first_call.py                        on the GPU: the sizes of GPT-2, bf16, 8 × 1024 tokens
    python benches/python/first_call.py --device cpu --small   on the processor
    python benches/python/first_call.py --cold                 without what earlier processes left on disk

Every named part is timed where it runs; a part inside another is taken off the outer one, so that the column adds up to the
whole. `--profile` adds what `cProfile` says of the same call, and makes everything slower. Each contender is a process of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpt import Config, contender, sizes  # noqa: E402

PARTS: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
"""By name: calls, seconds by itself, the longest call in seconds."""
_STACK = threading.local()


def timed(name: Callable[..., str] | str, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, with its time by itself added to a part."""

    def run(*args: Any, **kwargs: Any) -> Any:
        stack = _STACK.__dict__.setdefault("inner", [])
        stack.append(0.0)
        start = time.perf_counter()
        try:
            return f(*args, **kwargs)
        finally:
            whole = time.perf_counter() - start
            own = whole - stack.pop()
            if stack:
                stack[-1] += whole
            part = PARTS[name if isinstance(name, str) else name(*args, **kwargs)]
            part[0], part[1], part[2] = part[0] + 1, part[1] + own, max(part[2], whole)

    return run


def instrument() -> None:
    """Puts the clocks in."""
    import torch._inductor.codecache as codecache
    import torch._inductor.compile_fx as compile_fx
    from torch._inductor import graph

    compile_fx.compile_fx = timed("inductor: decompositions, passes, the rest", compile_fx.compile_fx)
    graph.GraphLowering.run = timed("inductor: lowering", graph.GraphLowering.run)
    graph.GraphLowering.codegen = timed("inductor: scheduling and source", graph.GraphLowering.codegen)
    loader = codecache.PyCodeCache
    loader.load_by_key_path = staticmethod(timed("inductor: compilers of its kernels", loader.load_by_key_path))
    try:
        import einloom
        import einloom._cascade as module
        from einloom import Cascade, _native
        from einloom.torch import operator, regions
    except ImportError:
        return
    backend = sys.modules["einloom.torch.backend"]  # the package has a function of that name
    backend.to_aten = timed("einloom: trace to ATen", backend.to_aten)
    backend.Partitioner.run = timed("einloom: grow regions", backend.Partitioner.run)
    backend.with_operators = timed("einloom: put operators in place", backend.with_operators)
    regions.convert = timed("einloom: convert", regions.convert)
    einloom.compile = timed("einloom: read and derive", einloom.compile)
    Cascade.plan = timed("einloom: plan regions", Cascade.plan)
    Cascade.source = timed("einloom: plan and emit, to see whether it can be", Cascade.source)
    operator._register = timed("einloom: register operators", operator._register)
    operator.wait = timed("einloom: wait for kernels made ahead", operator.wait)
    ahead = _native.Cascade.prepare

    def prepare(cascade: Any, *given: Any) -> None:
        start = time.perf_counter()
        ahead(cascade, *given)
        print(f"  ahead {cascade.name:23} {time.perf_counter() - start:7.3f} s, in a thread", file=sys.stderr)

    Cascade.prepare = prepare
    inner = _native.Cascade.__call__

    def call(cascade: Any, *args: Any, **kwargs: Any) -> Any:
        before = cascade.kernel_count
        start = time.perf_counter()
        result = inner(cascade, *args, **kwargs)
        took = time.perf_counter() - start
        if cascade.kernel_count > before:
            plan = cascade.last_plan()
            print(f"  made {cascade.name:24} {took:7.3f} s  {len(plan.kernels)} kernel(s), {plan.code}", file=sys.stderr)
        return result

    module._call = timed(lambda c, *a, **k: "einloom: make kernels (plan, emit, NVRTC, load), run them", call)


def measure(name: str, given: argparse.Namespace) -> None:
    """One contender."""
    device = torch.device(given.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config: Config = sizes(given)
    shape = (given.batch, config.context)
    if device.type == "cuda":
        torch.zeros(1, device=device)
    ids, targets = (torch.randint(0, config.vocabulary, shape).to(device) for _ in range(2))
    with torch.no_grad():
        model = contender(name, config, device, dtype)
        contender("eager", config, device, dtype)(ids, targets).item()
        if not given.plain:
            instrument()
        profile = cProfile.Profile() if given.profile else None
        start = time.perf_counter()
        if profile:
            profile.enable()
        model(ids, targets).item()
        if profile:
            profile.disable()
        whole = time.perf_counter() - start
        table(f"{name}: first call", whole)
        PARTS.clear()
        start = time.perf_counter()
        half = config.context // 2
        model(ids[:, :half].contiguous(), targets[:, :half].contiguous()).item()
        table(f"{name}: first call of half as many positions", time.perf_counter() - start)
    if profile:
        said = io.StringIO()
        pstats.Stats(profile, stream=said).sort_stats("tottime").print_stats(35)
        print(said.getvalue())


def table(of: str, whole: float) -> None:
    """Prints the parts so far."""
    known = sum(own for _, own, _ in PARTS.values())
    print(f"{of} {whole:.2f} s\n\n| part | calls | s | longest |\n|---|---|---|---|")
    for part, (calls, own, longest) in sorted(PARTS.items(), key=lambda p: -p[1][1]):
        print(f"| {part} | {calls:.0f} | {own:.2f} | {longest:.2f} |")
    print(f"| Dynamo, and what no clock is in | | {whole - known:.2f} | |\n", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--small", action="store_true")
    arguments.add_argument("--layers", type=int)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--plain", action="store_true", help="no clocks but the outer one")
    arguments.add_argument("--cold", action="store_true", help="caches of inductor and of Einloom begin empty")
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--only", action="append")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        return measure(given.one, given)
    for name in given.only or ("torch.compile, SDPA", "einloom"):
        environment = dict(os.environ)
        with tempfile.TemporaryDirectory() as empty:
            if given.cold:
                caches = ("EINLOOM_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
                environment |= {c: f"{empty}/{c.lower()}" for c in caches}
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", name], check=False, env=environment)


if __name__ == "__main__":
    main()
