"""Names of the sessions that a caller may see, for lists that also contain ids of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bai_services.core.accounts.roles import Caller
from bai_services.core.listing import ListQuery

from .sessions import Sessions


@dataclass(frozen=True, slots=True)
class SessionName:
    id: str
    name: str
    owner: str
    project: str


async def visible_names(
    sessions: Sessions, caller: Caller, ids: Sequence[str]
) -> Mapping[str, SessionName]:
    """Return the sessions in ``ids`` that the caller may see, by id."""
    if not ids:
        return {}
    query = ListQuery(limit=len(ids), filters={"id__in": ",".join(ids)})
    page = await sessions.page(caller, query)
    return {
        session.id: SessionName(session.id, session.name, session.owner, session.project)
        for session in page.items
    }
