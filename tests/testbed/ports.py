"""Free ports for servers that tests start."""

from __future__ import annotations

import os

from bai_services.system import ports

# Below the range from which `bai_services.system.ports` chooses by default.
_FIRST_PORT, _PORTS = 10_000, 10_000


def free_port() -> int:
    """Return a free port from the range of this worker; no two workers of a run share a range."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = _PORTS // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return ports.free_port(_FIRST_PORT + worker * count, count)
