"""Create work items for resizes, and process the agents' reports."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.cluster.devices import is_device_slot, thousandths
from bai_services.core.errors import NotFound
from bai_services.db.sessions.resizes import ResizeStore
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from .lifecycle import Lifecycle


class KernelResizes:
    """Derives work items from the pending resizes in the database, so that a restarted manager or
    agent continues them.
    """

    def __init__(
        self,
        store: ResizeStore,
        sessions: SessionStore,
        lifecycle: Lifecycle,
        capacity_released: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._capacity_released = capacity_released
        self._clock = clock
        # By session: events of the waiting callers, set when this manager has finished a resize.
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)

    async def items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the work items for the pending resizes of an agent."""
        return [
            {
                "id": f"resize-{pending.kernel_id}-{pending.number}",
                "kind": "resize",
                "session_id": pending.session_id,
                "kernel_id": pending.kernel_id,
                "hostname": pending.hostname,
                "number": pending.number,
                "slots": dict(pending.size),
                "devices": [
                    {"id": a.device_id, "slot": a.slot, "amount": thousandths(a.slot, a.amount)}
                    for a in pending.amounts
                    if is_device_slot(a.slot)
                ],
            }
            for pending in await self._store.pending_on(agent_id)
        ]

    async def receive(self, agent_id: str, report: Mapping[str, Any], state: str) -> None:
        """Process the report of an agent; a repeated or outdated report has no effect.

        Raises
        ------
        NotFound
            If the session is not on that agent.
        """
        session_id = str(report.get("session_id"))
        view = await self._sessions.with_kernels(session_id)
        if all(kernel.agent_id != agent_id for kernel in view.kernels):
            raise NotFound(f"session {session_id} is not on agent {agent_id}")
        number = str(report.get("work_id")).rpartition("-")[2]
        if state == "progress" or not number.isdecimal():
            return
        error = ""
        if state == "failed":
            given = (report.get("error") or {}).get("message")
            error = str(given or "the agent could not change the size of the session")
        devices = report.get("devices")
        await self.finish(session_id, int(number), error, devices)

    async def finish(self, session_id: str, number: int, error: str, devices: Any = None) -> None:
        """Finish a resize; ``error`` is empty if the agent has applied it."""
        row = await self._store.finish(
            session_id,
            number,
            self._clock(),
            error=error,
            devices=devices if isinstance(devices, list) else None,
        )
        if row is None:
            return
        self._lifecycle.notify(row)
        self._capacity_released()
        for finished in self._waiting.get(session_id, ()):
            finished.set()

    async def wait(self, session_id: str, timeout_seconds: float) -> None:
        """Wait until this manager has finished a resize of the session, or until the timeout."""
        finished = asyncio.Event()
        self._waiting[session_id].append(finished)
        try:
            async with asyncio.timeout(timeout_seconds):
                await finished.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting[session_id].remove(finished)
            if not self._waiting[session_id]:
                del self._waiting[session_id]
