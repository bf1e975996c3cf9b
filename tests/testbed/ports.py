"""Free ports for servers that tests start."""

from __future__ import annotations

import os

from bai_services.system import ports

_FIRST_PORT, _PORTS_PER_WORKER = 10_000, 2_000


def free_port() -> int:
    """Return a free port from the range of ports of this test process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return ports.free_port(_FIRST_PORT + _PORTS_PER_WORKER * (int(worker) % 5), _PORTS_PER_WORKER)
