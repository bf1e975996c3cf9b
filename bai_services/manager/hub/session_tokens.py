"""Create short-lived Hub tokens for one session, for callers who authenticate with a keypair."""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller
from bai_services.core.sessions.records import SessionToken

from ..context import ManagerContext
from ..sessions.sessions import Sessions
from .client import Hub

# Lifetime of a token. It limits how long a deactivated keypair still has access to sessions.
LIFETIME_SECONDS = 15 * 60


class SessionTokens:
    """Creates Hub tokens, because the servers of sessions do not accept keypairs."""

    def __init__(self, context: ManagerContext, hub: Hub, sessions: Sessions) -> None:
        self._hub = hub
        self._sessions = sessions
        self._audit = context.audit

    async def create(self, caller: Caller, key: str) -> SessionToken:
        """Create a token for the server of the caller's own running session.

        Raises
        ------
        NotFound
            If there is no such session, or the caller may not see it.
        Forbidden
            If the session belongs to another user, even if the caller is an administrator.
        Conflict
            If the session is not running.
        """
        row = await self._sessions.find_enterable(caller, key)
        server = f"{row.hub_user}/{row.hub_server}"
        token = await self._hub.create_token(
            row.hub_user,
            f"keypair {caller.access_key}",
            LIFETIME_SECONDS,
            [f"access:servers!server={server}"],
        )
        entry = self._audit.entry(
            caller, "session.enter", row.id, domain=row.domain, owner_id=row.owner_id, name=row.name
        )
        await self._audit.add(entry)
        return SessionToken(token.value, LIFETIME_SECONDS)
