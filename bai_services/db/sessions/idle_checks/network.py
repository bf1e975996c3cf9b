"""The network checkers that are bound to a session."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.idle_checks.checkers import BindingScope, CheckerType
from bai_services.core.sessions.lifecycle import SessionType

from ...tables.accounts import keypairs
from ...tables.idle_checks import idle_checker_bindings as bindings
from ...tables.idle_checks import idle_checkers as checkers
from ...tables.sessions import sessions
from .results import checker_of

# The columns with the ids of the scopes of a session.
_SCOPES = {
    BindingScope.DOMAIN: sessions.c.domain,
    BindingScope.PROJECT: sessions.c.project_id,
    BindingScope.RESOURCE_GROUP: sessions.c.resource_group,
    BindingScope.USER: sessions.c.owner_id,
    BindingScope.KEYPAIR_POLICY: keypairs.c.resource_policy,
}
_NETWORK = (
    sa.select(sessions.c.type.label("session_type"), checkers)
    .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key, isouter=True)
    .join(
        bindings,
        sa.or_(
            *(
                sa.and_(bindings.c.scope == scope, bindings.c.scope_id == column)
                for scope, column in _SCOPES.items()
            )
        ),
    )
    .join(checkers, bindings.c.checker_id == checkers.c.id)
    .where(
        sessions.c.id == sa.bindparam("of_session"),
        bindings.c.is_enabled,
        checkers.c.type == CheckerType.NETWORK,
    )
)


async def read_network_seconds(tx: AsyncConnection, session_id: str) -> list[int]:
    """Return the maximum inactivity of each network checker that is bound to a session."""
    found = []
    for row in await tx.execute(_NETWORK, {"of_session": session_id}):
        checker = checker_of(row.id, row.name, row.type, row.settings)
        if checker.applies_to(SessionType(row.session_type)):
            found.append(checker.settings.max_seconds)
    return found
