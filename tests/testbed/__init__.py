"""Components, fakes and helpers for tests; the pytest plugin."""

from __future__ import annotations

import os
from pathlib import Path


class ComponentMissing(Exception):
    """A component that a test needs is not available on this machine; the message says why."""


def cache_dir() -> Path:
    """Return the folder for files that are slow to create, such as base images."""
    base = os.environ.get("BAI_TESTBED_CACHE")
    path = Path(base) if base else Path.home() / ".cache" / "bai-testbed"
    path.mkdir(parents=True, exist_ok=True)
    return path
