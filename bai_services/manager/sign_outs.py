"""Puts people out: their sessions, then tokens, servers and cookies, until the Hub has heard it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bai_services.core.errors import BaiError
from bai_services.core.roles import Caller, Role
from bai_services.db.accounts import AccountStore
from bai_services.db.database import Database
from bai_services.db.users import UserStore

from .callers import refusal
from .hub import Hub

RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 120.0

_MANAGER = Caller(Role.SUPERADMIN, username="manager")

log = logging.getLogger(__name__)


class SignOuts:
    """Works off the people whose row says so; a restart goes on where this ended.

    The manager itself refuses them from the moment of the change; this takes
    away what the Hub still gives them.
    """

    def __init__(
        self, database: Database, hub: Hub, stop_session: Callable[[Caller, str], Awaitable[object]]
    ) -> None:
        self._users = UserStore(database)
        self._stop_session = stop_session
        self._accounts = AccountStore(database)
        self._hub = hub
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Look for people to put out soon; cheap."""
        self._due.set()

    def start(self) -> None:
        self._due.set()
        self._task = asyncio.create_task(self._run(), name="sign-outs")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def work_off(self) -> bool:
        """Put out everybody who is due; return False if somebody is left for later."""
        is_done = True
        for row in await self._users.waiting_for_sign_out():
            try:
                is_done &= await self._put_out(row["id"], row["username"])
            except BaiError as error:
                log.warning("%s is still known to the Hub: %s", row["username"], error)
                is_done = False
        return is_done

    async def _put_out(self, user_id: str, username: str) -> bool:
        account = await self._accounts.by_username(username)
        may_come_back = account is not None and refusal(account, None) is None
        if not may_come_back:
            for session_id in await self._users.live_sessions(user_id):
                await self._stop_session(_MANAGER, session_id)
        if self._hub.is_known and not await self._put_out_at_hub(username, may_come_back):
            return False
        await self._users.signed_out(user_id)
        return True

    async def _put_out_at_hub(self, username: str, may_come_back: bool) -> bool:
        await self._hub.delete_tokens(username)
        is_stopped = True
        for name, server in (await self._hub.servers_of(username)).items():
            if not server.get("stopped"):
                is_stopped &= await self._hub.stop_server(username, name)
        if not is_stopped:
            return False
        if not may_come_back:
            # Without the Hub's user its cookies are worth nothing.
            await self._hub.delete_user(username)
        return True

    async def _run(self) -> None:
        wait = RETRY_SECONDS
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                is_done = await self.work_off()
            except Exception:
                log.exception("signing people out at the Hub failed")
                is_done = False
            if is_done:
                wait = RETRY_SECONDS
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), wait)
            wait = min(wait * 2, MAX_RETRY_SECONDS)
            self._due.set()
