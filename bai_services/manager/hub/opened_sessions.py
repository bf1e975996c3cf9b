"""Open batch sessions that their agent has started: attach a server of the Hub to their kernel."""

from __future__ import annotations

import asyncio
import contextlib

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, Unavailable
from bai_services.core.sessions.agent_launch import is_openable
from bai_services.core.sessions.records import SessionServer
from bai_services.db.sessions.rows import SessionRow

from ..context import ManagerContext
from ..sessions.sessions import Sessions
from .client import HubBusy
from .servers import HubServers

# A call waits at most this time for the server; callers repeat the call until it is ready.
WAIT_SECONDS = 10.0
POLL_SECONDS = 0.2


class OpenedSessions:
    """Starts the servers with which users open running batch sessions: SSH, terminal, apps.

    The server runs in the kernel of the session, beside its command. The session does not depend
    on the server: the end of the server changes nothing, and the end of the command ends both.
    """

    def __init__(self, context: ManagerContext, servers: HubServers, sessions: Sessions) -> None:
        self._servers = servers
        self._sessions = sessions
        self._audit = context.audit

    async def open(self, caller: Caller, key: str) -> SessionServer:
        """Return the server of the caller's own running session; start it if necessary.

        Raises
        ------
        NotFound
            If there is no such session, or the caller may not see it.
        Forbidden
            If the session belongs to another user, even if the caller is an administrator.
        Conflict
            If the session is not running, or is a batch session that runs only its command.
        Unavailable
            If the Hub cannot start the server.
        """
        row = await self._sessions.find_enterable(caller, key)
        if not is_openable(row.type, row.started_by):
            raise Conflict(
                f"{row.name} is a batch session that runs only its command, because its agent has "
                "not started it"
            )
        if await self._servers.is_ready(row):
            return SessionServer(is_ready=True)
        entry = self._audit.entry(
            caller, "session.open", row.id, domain=row.domain, owner_id=row.owner_id, name=row.name
        )
        await self._audit.add(entry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await self._start(row)
                return SessionServer(is_ready=True)
        return SessionServer(is_ready=False)

    async def _start(self, row: SessionRow) -> None:
        try:
            if await self._servers.begin_start(row):
                return
        except HubBusy as busy:
            await asyncio.sleep(busy.retry_after)
        except Conflict:
            pass  # another call has started the server
        while True:
            model = await self._servers.server_model(row) or {}
            if model.get("ready"):
                return
            if not model.get("pending"):
                raise Unavailable(
                    f"the server for session {row.name} did not start; see the log of the Hub"
                )
            await asyncio.sleep(POLL_SECONDS)
