"""Ports for the tests' own servers."""

from __future__ import annotations

import os

from bai_services import ports

_LOWEST, _OF_EACH_WORKER = 10_000, 2_000


def free_port() -> int:
    """Return a port that nothing listens on, from a range that only this test process uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return ports.free_port(_LOWEST + _OF_EACH_WORKER * (int(worker) % 5), _OF_EACH_WORKER)
