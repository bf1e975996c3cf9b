"""Real parts for tests: each module starts one and says plainly when it cannot."""

from __future__ import annotations

import os
from pathlib import Path


class PartMissing(Exception):
    """A real part that a test asked for cannot be had on this machine; the text says why."""


def cache_dir() -> Path:
    """Return the folder for what is costly to make (base images, the engine's data)."""
    base = os.environ.get("BAI_TESTBED_CACHE")
    path = Path(base) if base else Path.home() / ".cache" / "bai-testbed"
    path.mkdir(parents=True, exist_ok=True)
    return path
