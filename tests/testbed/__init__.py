"""Real components for tests: each module starts one, or raises `PartMissing` with the reason."""

from __future__ import annotations

import os
from pathlib import Path


class PartMissing(Exception):
    """A component that a test needs is not available on this machine; the text gives the reason."""


def cache_dir() -> Path:
    """Return the folder for what is costly to make (base images, the engine's data)."""
    base = os.environ.get("BAI_TESTBED_CACHE")
    path = Path(base) if base else Path.home() / ".cache" / "bai-testbed"
    path.mkdir(parents=True, exist_ok=True)
    return path
