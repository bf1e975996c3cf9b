"""Sign-out at the Hub: tokens at once, then sessions, servers and the Hub's user.

The users to sign out are stored in the database, so a restarted manager continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import BaiError
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.users import Revocation, Row, UserStore
from bai_services.db.database import Database

from ..hub.client import Hub
from .callers import refusal

RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 120.0

_MANAGER = Caller(Role.SUPERADMIN, username="manager")

log = logging.getLogger(__name__)


class TokenEndings:
    """Ends a user's browser sign-ins at the Hub, and API tokens where requested."""

    def __init__(self, database: Database, hub: Hub) -> None:
        self._users = UserStore(database)
        self._hub = hub
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, forget: Callable[[str], None]) -> None:
        """Call ``forget`` with the name of each user whose sign-ins end."""
        self._listeners.append(forget)

    async def end(self, row: Row, keep_session: str = "") -> None:
        """End what ``tokens_to_end`` of a user's row names.

        Raises
        ------
        Unavailable
            If the Hub cannot be reached; the row remains to be processed.
        """
        ending: Revocation | None = row["tokens_to_end"]
        if ending is None:
            return
        for forget in self._listeners:
            forget(row["username"])
        if self._hub.is_known:
            if ending == "all":
                await self._hub.end_access(row["username"])
            else:
                await self._hub.end_sign_ins(row["username"], keep_session)
        await self._users.mark_revoked(row["id"], ending)

    async def work_off(self) -> bool:
        """End the tokens of all users in question; return False if some remain for later."""
        is_done = True
        for row in await self._users.pending_revocations():
            try:
                await self.end(row)
            except BaiError as error:
                log.warning("tokens of %s are still valid: %s", row["username"], error)
                is_done = False
        return is_done


class SignOuts:
    """Signs out the users that are marked for it in the database.

    The manager itself refuses them from the moment of the change; this class removes what the Hub
    still grants them.
    """

    def __init__(
        self,
        database: Database,
        hub: Hub,
        endings: TokenEndings,
        stop_session: Callable[[Caller, str], Awaitable[object]],
    ) -> None:
        self._users = UserStore(database)
        self._stop_session = stop_session
        self._accounts = AccountStore(database)
        self._hub = hub
        self._endings = endings
        # Stopping servers takes up to a minute each; ending tokens must not wait for it.
        self._due = {"tokens": asyncio.Event(), "servers": asyncio.Event()}
        self._tasks: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        """Check soon for users to sign out; cheap."""
        for due in self._due.values():
            due.set()

    def start(self) -> None:
        self.wake()
        work = {"tokens": self._endings.work_off, "servers": self.work_off}
        self._tasks = [
            asyncio.create_task(_run(self._due[what], each), name=f"sign-outs: {what}")
            for what, each in work.items()
        ]

    async def stop(self) -> None:
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def work_off(self) -> bool:
        """Sign out all users marked for it; return False if some remain for later."""
        is_done = True
        for row in await self._users.pending_sign_outs():
            try:
                is_done &= await self._sign_out(row)
            except BaiError as error:
                log.warning("%s is still known to the Hub: %s", row["username"], error)
                is_done = False
        return is_done

    async def _sign_out(self, row: Row) -> bool:
        await self._endings.end(row)
        account = await self._accounts.by_username(row["username"])
        may_come_back = account is not None and refusal(account, None) is None
        if not may_come_back:
            for session_id in await self._users.live_sessions(row["id"]):
                await self._stop_session(_MANAGER, session_id)
        if self._hub.is_known and not await self._stop_at_hub(row["username"], may_come_back):
            return False
        await self._users.signed_out(row["id"])
        return True

    async def _stop_at_hub(self, username: str, may_come_back: bool) -> bool:
        is_stopped = True
        for name, server in (await self._hub.servers_of(username)).items():
            if not server.get("stopped"):
                is_stopped &= await self._hub.stop_server(username, name)
        if not is_stopped:
            return False
        if not may_come_back:
            await self._hub.delete_tokens(username)
            await self._hub.delete_user(username)
        return True


async def _run(due: asyncio.Event, work_off: Callable[[], Awaitable[Any]]) -> None:
    """Call ``work_off`` when ``due`` is set, and again later while something remains."""
    wait = RETRY_SECONDS
    while True:
        await due.wait()
        due.clear()
        try:
            is_done = await work_off()
        except Exception:
            log.exception("signing users out at the Hub failed")
            is_done = False
        if is_done:
            wait = RETRY_SECONDS
            continue
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(due.wait(), wait)
        wait = min(wait * 2, MAX_RETRY_SECONDS)
        due.set()
