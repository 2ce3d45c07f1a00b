"""What `EINLOOM_LOG` asks to be told, on standard error: `fusion` (regions taken and refused), `gradient`, `all`."""

from __future__ import annotations

import os
import sys


def wanted(topic: str) -> bool:
    """Whether the environment asks for a topic."""
    topics = {t.strip() for t in os.environ.get("EINLOOM_LOG", "").split(",")}
    return bool(topics & {topic, "all"})


def log(topic: str, message: str) -> None:
    """Says something about a topic, if that is wanted."""
    if wanted(topic):
        print(f"einloom[{topic}] {message}", file=sys.stderr)
