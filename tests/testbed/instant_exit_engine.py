"""An engine whose kernels exit with code 0 as soon as they have started."""

from __future__ import annotations

from bai_services.engines.base import Exit, Running
from benchmarks.noop_engine import NoopEngine


class InstantExitEngine(NoopEngine):
    """Simulates batch sessions that end as soon as the Hub has registered their server."""

    async def poll(self, running: Running) -> Exit | None:
        return None if self.parent.pending == "spawn" else Exit(0)
