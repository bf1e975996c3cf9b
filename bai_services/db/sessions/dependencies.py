"""Store of the dependencies between sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import NotFound
from bai_services.core.sessions.dependencies import Dependency, check_none_failed
from bai_services.core.sessions.lifecycle import ENDED, Result, Status

from ..database import Database
from ..scheduling.caps import CHUNK
from ..tables.sessions import session_dependencies, sessions

# Maximum number of sessions in a graph.
GRAPH_LIMIT = 1000

_pending = sessions.alias("waiting")
_awaited = sessions.alias("awaited")
_PAIRS = (
    sa.select(
        session_dependencies.c.session_id.label("session_id"),
        _awaited.c.id,
        _awaited.c.name,
        _awaited.c.status,
        _awaited.c.result,
    )
    .join_from(session_dependencies, _awaited, session_dependencies.c.depends_on == _awaited.c.id)
    .order_by(_awaited.c.sequence)
)

# Statements that run often are built at import, because building one takes longer than running it.
_PAIRS_OF = _PAIRS.where(session_dependencies.c.session_id.in_(sa.bindparam("ids", expanding=True)))
_OF_PENDING = _PAIRS.join(_pending, session_dependencies.c.session_id == _pending.c.id).where(
    _pending.c.status == Status.PENDING
)
_FAILED_OF_PENDING = _OF_PENDING.where(
    _awaited.c.status.in_(sorted(ENDED))
    & sa.not_((_awaited.c.status == Status.TERMINATED) & (_awaited.c.result == Result.SUCCESS))
)


@dataclass(frozen=True, slots=True)
class Graph:
    """Connected sessions, and their dependencies as pairs (session id, id of its dependency).

    ``is_cut`` is true if sessions may be missing because of GRAPH_LIMIT.
    """

    sessions: Sequence[Dependency]
    pairs: Sequence[tuple[str, str]]
    is_cut: bool


class DependencyStore:
    """Reads dependencies. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def pending_with_failed_dependency(self) -> list[tuple[str, Dependency]]:
        """Return (session id, failed dependency) for each pending session with a failed dependency.

        For a session with several failed dependencies, only one is returned.
        """
        async with self._db.read() as tx:
            rows = await tx.execute(_FAILED_OF_PENDING)
            return list({row.session_id: _dependency(row) for row in rows}.items())

    async def graph(self, session_id: str) -> Graph:
        """Return a session, and the sessions connected to it by dependencies in either direction.

        Indirect connections count. The graph has at most ``GRAPH_LIMIT`` sessions; sessions with
        the shortest connections are preferred.
        """
        pairs: set[tuple[str, str]] = set()
        # A dictionary keeps the order in which a breadth-first search finds the sessions.
        seen, edge = {session_id: None}, [session_id]
        both = (session_dependencies.c.session_id, session_dependencies.c.depends_on)
        async with self._db.read() as tx:
            while edge and len(seen) < GRAPH_LIMIT:
                part, edge = edge[:CHUNK], edge[CHUNK:]
                rows = await tx.execute(
                    sa.select(*both).where(sa.or_(both[0].in_(part), both[1].in_(part)))
                )
                for row in rows:
                    pairs.add((row.session_id, row.depends_on))
                    for key in (row.session_id, row.depends_on):
                        if key not in seen:
                            seen[key] = None
                            edge.append(key)
            shown = sorted(list(seen)[:GRAPH_LIMIT])
            items = await _read(tx, shown)
        known = {item.id for item in items}
        kept = sorted(pair for pair in pairs if known.issuperset(pair))
        return Graph(items, kept, is_cut=bool(edge) or len(seen) > len(shown))


async def write(tx: AsyncConnection, owner_id: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Insert dependencies as pairs (session id, id of its dependency).

    Raises
    ------
    NotFound
        If a dependency does not exist or has another owner.
    Conflict
        If a dependency has ended without success.
    """
    if not pairs:
        return
    awaited = await _read(tx, sorted({key for _, key in pairs}), owner_id)
    missing = sorted({key for _, key in pairs} - {item.id for item in awaited})
    if missing:
        raise NotFound(
            f"you have no session {missing[0]} to depend on",
            field="dependencies",
            session=missing[0],
        )
    check_none_failed(awaited)
    await tx.execute(
        sa.insert(session_dependencies),
        [{"session_id": session_id, "depends_on": key} for session_id, key in pairs],
    )


async def read_dependencies(tx: AsyncConnection, ids: Iterable[str]) -> dict[str, list[Dependency]]:
    """Return the dependencies of each session."""
    unique_ids = sorted(set(ids))
    dependencies: dict[str, list[Dependency]] = defaultdict(list)
    for start in range(0, len(unique_ids), CHUNK):
        part = unique_ids[start : start + CHUNK]
        rows = await tx.execute(_PAIRS_OF, {"ids": part})
        for row in rows:
            dependencies[row.session_id].append(_dependency(row))
    return dependencies


async def read_unmet(tx: AsyncConnection) -> dict[str, list[Dependency]]:
    """Return the unmet dependencies of pending sessions, by session."""
    rows = await tx.execute(_OF_PENDING)
    unmet: dict[str, list[Dependency]] = defaultdict(list)
    for row in rows:
        dependency = _dependency(row)
        if not dependency.is_met:
            unmet[row.session_id].append(dependency)
    return unmet


async def _read(
    tx: AsyncConnection, ids: Sequence[str], owner_id: str | None = None
) -> list[Dependency]:
    read: list[Dependency] = []
    for start in range(0, len(ids), CHUNK):
        select = sa.select(
            sessions.c.id, sessions.c.name, sessions.c.status, sessions.c.result
        ).where(sessions.c.id.in_(ids[start : start + CHUNK]))
        if owner_id is not None:
            select = select.where(sessions.c.owner_id == owner_id)
        rows = await tx.execute(select.order_by(sessions.c.sequence))
        read += [_dependency(row) for row in rows]
    return read


def _dependency(row: sa.Row[*tuple[Any, ...]]) -> Dependency:
    return Dependency(row.id, row.name, Status(row.status), row.result)
