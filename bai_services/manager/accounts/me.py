"""The caller's own account, limits and usage."""

from __future__ import annotations

from bai_services.core.accounts.records import OwnAccount
from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery
from bai_services.core.scheduling.caps import (
    SESSIONS,
    Scope,
    ScopeCaps,
    ScopeKind,
    amount_text,
    highest,
)
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.keypairs import KeypairStore
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database


class Me:
    """Returns the caller's own account."""

    def __init__(self, database: Database) -> None:
        self._users = UserStore(database)
        self._keypairs = KeypairStore(database)
        self._accounts = AccountStore(database)

    async def get(self, caller: Caller) -> OwnAccount:
        """Return the caller's account, projects, keypairs, limits and usage."""
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} is a system component, not a user")
        user = await self._users.find(caller.user_id)
        assert user is not None  # callers are existing users
        keypairs = await self._keypairs.page(ListQuery(limit=500), user_id=caller.user_id)
        mine = Scope(ScopeKind.USER, caller.user_id)
        scopes = [Scope(ScopeKind.DOMAIN, user.domain), mine]
        if caller.access_key:
            scopes.append(Scope(ScopeKind.KEYPAIR, caller.access_key))
        caps, usage = await self._accounts.caps_and_usage(scopes)
        return OwnAccount(
            id=user.id,
            username=user.username,
            email=user.email,
            full_name=user.full_name,
            role=user.role,
            domain=user.domain,
            projects=user.projects,
            keypairs=[keypair.access_key for keypair in keypairs.items if keypair.is_active],
            need_password_change=user.need_password_change,
            limits=_limits(list(caps.values())),
            usage={slot: amount_text(slot, n) for slot, n in usage[mine].items() if n},
        )


def _limits(caps: list[ScopeCaps]) -> dict[str, str]:
    slots = {slot for scope in caps for slot in scope.slots} | {SESSIONS}
    found = {slot: highest(caps, slot) for slot in sorted(slots)}
    return {slot: amount_text(slot, n) for slot, n in found.items() if n is not None}
