"""Sign users out at the Hub: revoke tokens first, then stop servers.

After a move to another domain, also stop the user's sessions in the old domain. If the account may
not sign in, stop all its sessions and delete the Hub's user.

Pending sign-outs are stored in the database, so a restarted manager continues them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from bai_services.core.accounts.records import PendingSignOut
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import BaiError
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database

from ..hub.client import Hub
from .callers import refusal

FIRST_BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 120.0

_MANAGER = Caller(Role.SUPERADMIN, username="manager")

log = logging.getLogger(__name__)


class TokenRevocations:
    """Ends users' browser sign-ins at the Hub and their tokens of the chat page and, if requested,
    revokes their API tokens.
    """

    def __init__(self, database: Database, hub: Hub) -> None:
        self._users = UserStore(database)
        self._hub = hub
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the name of each user whose sign-ins end."""
        self._listeners.append(listener)

    async def revoke(self, user: PendingSignOut, keep_session: str = "") -> None:
        """End the sign-ins and, if ``tokens_to_end`` is "all", also revoke the API tokens.

        ``keep_session`` is the Hub's session id of a browser sign-in that does not end; with "all",
        it has no effect. With "all", tokens of running servers stay valid.

        Raises
        ------
        Unavailable
            If the Hub cannot be reached; the revocation stays pending.
        """
        kind = user.tokens_to_end
        if kind is None:
            return
        for listener in self._listeners:
            listener(user.username)
        # A browser that is still signed in gets a new token.
        await self._users.end_chat_tokens(user.id)
        if self._hub.is_known:
            if kind == "all":
                await self._hub.end_access(user.username)
            else:
                await self._hub.end_sign_ins(user.username, keep_session)
        await self._users.mark_revoked(user.id, kind)

    async def end_browser_sign_ins(
        self, user_id: str, username: str, token_ids: Sequence[str]
    ) -> None:
        """End some browser sign-ins of a user, and the user's tokens of the chat page.

        Raises
        ------
        Unavailable
            If the Hub cannot be reached.
        """
        for token_id in token_ids:
            await self._hub.end_sign_in(username, token_id)
        # A browser that is still signed in gets a new token.
        await self._users.end_chat_tokens(user_id)

    async def process_pending(self) -> bool:
        """Process all pending revocations; return False if some failed."""
        is_done = True
        for user in await self._users.pending_revocations():
            try:
                await self.revoke(user)
            except BaiError as error:
                log.warning("tokens of %s are still valid: %s", user.username, error)
                is_done = False
        return is_done


class SignOuts:
    """Signs out the users that are marked for sign-out in the database.

    The manager itself rejects deactivated users immediately; this class removes their access at the
    Hub.
    """

    def __init__(
        self,
        database: Database,
        hub: Hub,
        revocations: TokenRevocations,
        stop_session: Callable[[Caller, str], Awaitable[object]],
    ) -> None:
        self._users = UserStore(database)
        self._stop_session = stop_session
        self._accounts = AccountStore(database)
        self._hub = hub
        self._revocations = revocations
        # Separate loops: stopping a server takes up to a minute, which must not delay revocations.
        self._due = {"tokens": asyncio.Event(), "servers": asyncio.Event()}
        self._tasks: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        """Wake the loops to check for pending sign-outs."""
        for due in self._due.values():
            due.set()

    def start(self) -> None:
        self.wake()
        work = {"tokens": self._revocations.process_pending, "servers": self.process_pending}
        self._tasks = [
            asyncio.create_task(_run(self._due[kind], process), name=f"sign-outs: {kind}")
            for kind, process in work.items()
        ]

    async def stop(self) -> None:
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def process_pending(self) -> bool:
        """Process all pending sign-outs; return False if some failed."""
        is_done = True
        for user in await self._users.pending_sign_outs():
            try:
                is_done &= await self._sign_out(user)
            except BaiError as error:
                log.warning("%s is not signed out at the Hub yet: %s", user.username, error)
                is_done = False
        return is_done

    async def _sign_out(self, user: PendingSignOut) -> bool:
        await self._revocations.revoke(user)
        account = await self._accounts.by_username(user.username)
        may_sign_in = account is not None and refusal(account, None) is None
        for session_id in await self._users.live_sessions(user.id, outside_domain=may_sign_in):
            await self._stop_session(_MANAGER, session_id)
        if self._hub.is_known and not await self._stop_at_hub(user.username, may_sign_in):
            return False
        await self._users.signed_out(user.id)
        return True

    async def _stop_at_hub(self, username: str, may_sign_in: bool) -> bool:
        is_stopped = True
        for name, server in (await self._hub.servers_of(username)).items():
            if not server.get("stopped"):
                is_stopped &= await self._hub.stop_server(username, name)
        if not is_stopped:
            return False
        if not may_sign_in:
            await self._hub.delete_tokens(username)
            await self._hub.delete_user(username)
        return True


async def _run(due: asyncio.Event, process: Callable[[], Awaitable[bool]]) -> None:
    """Call ``process`` when ``due`` is set; repeat it with exponential backoff while it fails."""
    backoff = FIRST_BACKOFF_SECONDS
    while True:
        await due.wait()
        due.clear()
        try:
            is_done = await process()
        except Exception:
            log.exception("signing users out at the Hub failed")
            is_done = False
        if is_done:
            backoff = FIRST_BACKOFF_SECONDS
            continue
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(due.wait(), backoff)
        backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
        due.set()
