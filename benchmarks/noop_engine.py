"""An engine without kernels, to measure only Hub, manager, agent and spawner."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_spawner.engines.base import Engine, Exit, Running

# URL of an HTTP server that answers every request; all sessions have this address.
URL_VARIABLE = "BAI_BENCH_SERVER"


class NoopEngine(Engine):
    name = "process"

    _ended: set[str] = set()  # shared by the whole Hub, like real kernels

    def __init__(self, shared: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        host, _, port = os.environ[URL_VARIABLE].rpartition("://")[2].partition(":")
        return host, int(port)

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        return Running(
            engine=self.name,
            session_id=plan.session_id,
            url=os.environ[URL_VARIABLE],
            container_id=f"noop-{plan.kernel_id}",
            owner=plan.user,
        )

    async def poll(self, running: Running) -> Exit | None:
        return Exit(0) if running.session_id in self._ended else None

    async def read_log(self, running: Running, max_bytes: int) -> str:
        return ""

    async def stop(self, running: Running, now: bool = False) -> Exit:
        self._ended.add(running.session_id)
        return Exit(0)

    async def remove(self, running: Running) -> None:
        pass
