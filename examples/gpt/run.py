"""Makes the weights, saves and loads them, and compares the compiled model with eager PyTorch."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import einloom.torch
import torch
from model import Config, build, save


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--dtype", default="float32")
    arguments.add_argument("--weights", type=Path, help="where to keep them (a temporary folder if not given)")
    given = arguments.parse_args()
    path = given.weights or Path(tempfile.mkdtemp()) / "gpt.safetensors"
    config = Config()
    if not path.exists():
        save(path, config)
    model = build(config, path=path).to(given.device, getattr(torch, given.dtype))
    generator = torch.Generator().manual_seed(1)
    ids, targets = (torch.randint(0, config.vocabulary, (2, config.context), generator=generator) for _ in range(2))
    ids, targets = ids.to(given.device), targets.to(given.device)
    fast = torch.compile(model, backend=einloom.torch.backend, fullgraph=True, dynamic=False)
    with torch.no_grad():
        want, got = model(ids), fast(ids)
        print(f"logits: largest difference {(got - want).abs().max():.1e} of {want.abs().max():.1f}")
        print(f"loss: {fast(ids, targets):.6f}, eager {model(ids, targets):.6f}")
    print(einloom.torch.reports()[-1])


if __name__ == "__main__":
    main()
