"""Resize running sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict
from bai_services.core.resources import ResourceSlots, parse_amount
from bai_services.core.sessions.records import Session
from bai_services.core.sessions.resizing import ResizeState
from bai_services.db.sessions.resizes import AuditOf, RequestedResize, ResizeStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from .kernel_resizes import KernelResizes
from .kernels import Kernels
from .lifecycle import Lifecycle
from .sessions import Sessions, target_of

# Maximum wait for the agent before the response; the resize continues afterwards.
WAIT_SECONDS = 10.0


class Resizes:
    """Changes the size of running sessions, for users and for elastic sessions."""

    def __init__(
        self,
        sessions: Sessions,
        store: ResizeStore,
        kernels: Kernels,
        kernel_resizes: KernelResizes,
        lifecycle: Lifecycle,
        clock: Clock,
        audit: Audit,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._kernels = kernels
        self._kernel_resizes = kernel_resizes
        self._lifecycle = lifecycle
        self._clock = clock
        self._audit = audit

    async def resize(self, caller: Caller, key: str, resources: Mapping[str, str]) -> Session:
        """Change the size of a running session; slots that are not given keep their amounts.

        The agent applies the size within seconds. If it does not respond in ``WAIT_SECONDS``, the
        ``resize`` of the returned session is pending.

        Raises
        ------
        BaiError
            The errors of ``ResizeStore.request``.
        Conflict
            If the agent cannot apply the size; the session keeps its current size.
        """
        row = await self._sessions.find_visible(caller, key)
        authorizer.require(caller, "session.write", target_of(row))
        changes = {slot: parse_amount(slot, text) for slot, text in resources.items()}
        if all(row.requested_slots.get(slot) == amount for slot, amount in changes.items()):
            return await self._sessions.view(caller, row)

        def audit(requested: RequestedResize) -> AuditEntry:
            details = self._audit.changes(
                {"resources": requested.resize.previous.format()},
                {"resources": requested.resize.requested.format()},
            )
            return self._audit.entry(
                caller,
                "session.resize",
                row.id,
                domain=row.domain,
                owner_id=row.owner_id,
                name=row.name,
                **details,
            )

        finished = asyncio.create_task(self._kernel_resizes.wait(row.id, WAIT_SECONDS))
        try:
            await asyncio.sleep(0)  # let the task start to wait before the agent can report
            await self.request(row.id, changes, caller.username, audit)
            await finished
        finally:
            finished.cancel()
        session = await self._sessions.view(caller, row)
        resize = session.resize
        if resize is not None and resize.state is ResizeState.FAILED:
            raise Conflict(resize.message, session=row.id)
        return session

    async def request(
        self,
        session_id: str,
        changes: Mapping[str, int],
        by: str = "",
        audit: AuditOf | None = None,
    ) -> RequestedResize:
        """Start a resize and notify the agent; ``by`` is empty for an elastic session."""
        requested = await self._store.request(session_id, changes, by, self._clock(), audit)
        self._lifecycle.notify(requested.session)
        self._kernels.wake([requested.kernel.agent_id or ""])
        return requested


def changed_slots(before: ResourceSlots, after: ResourceSlots) -> dict[str, int]:
    """Return the slots of ``after`` whose amounts differ from ``before``, with the new amounts."""
    return {slot: amount for slot, amount in after.items() if amount != before.get(slot, 0)}
