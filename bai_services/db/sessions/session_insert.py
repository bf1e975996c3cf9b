"""Steps of the creation of sessions, for the transaction of ``SessionStore.enqueue_all``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import AlreadyExists, InUse
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling import caps as policy
from bai_services.core.scheduling.caps import SESSIONS, Scope
from bai_services.core.sessions.kernel_group import kernel_names, total_slots
from bai_services.core.sessions.lifecycle import Result, Status
from bai_services.core.sessions.resizing import Elasticity
from bai_services.core.sessions.resolved_spec import ResolvedSpec

from ..scheduling import ledger
from ..scheduling.caps import CHUNK, read_caps, read_pending_usage
from ..tables.callbacks import session_callbacks
from ..tables.folders import vfolder_mounts, vfolders
from ..tables.sessions import counters, kernels, sessions
from .resize_rows import insert_elastic
from .rows import SELECT, KernelRow, SessionRow, SessionView, row_of

_SPEC_COLUMNS = [f.name for f in fields(ResolvedSpec)]


@dataclass(frozen=True, slots=True)
class NewSession(ResolvedSpec):
    """A session to create; the caller generates the ids."""

    kernel_id: str
    # Ids of the kernels sub1, sub2 … of a cluster session.
    sub_kernel_ids: tuple[str, ...] = ()
    # Ids of the owner's sessions that this session depends on; they may be created in the same
    # call.
    dependencies: tuple[str, ...] = ()
    # The sizes between which the manager resizes the session; None: the size is fixed.
    elasticity: Elasticity | None = None
    # Whether to use a live session with this name even if its specification differs.
    reuse: bool = False
    # The span of the request, as ``traceparent``.
    trace: str | None = None
    # Whether the session runs a task of a pipeline.
    is_pipeline_task: bool = False

    @property
    def cluster_size(self) -> int:
        return 1 + len(self.sub_kernel_ids)

    @property
    def total_slots(self) -> ResourceSlots:
        """Sum of the slots of all kernels."""
        return total_slots(self.requested_slots, self.cluster_size)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return ledger.scopes_of(
            self.domain, self.project_id, self.owner_id, self.access_key, self.resource_group
        )


async def next_sequences(tx: AsyncConnection, count: int) -> range:
    """Reserve the next ``count`` sequence numbers.

    The update locks the counter until the end of the transaction, so creations are serialized.
    """
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(counters)
    last = await tx.scalar(
        insert.values(name=SESSIONS, value=count)
        .on_conflict_do_update(
            index_elements=[counters.c.name], set_={"value": counters.c.value + count}
        )
        .returning(counters.c.value)
    )
    return range(int(last or 0) - count + 1, int(last or 0) + 1)


# Built once, at import, because the query runs at each creation of sessions.
_CONFLICTING = SELECT.where(
    sa.or_(
        sessions.c.owner_id.in_(sa.bindparam("owners", expanding=True))
        & sessions.c.live_name.in_(sa.bindparam("names", expanding=True)),
        sessions.c.hub_user.in_(sa.bindparam("users", expanding=True))
        & sessions.c.hub_server.in_(sa.bindparam("servers", expanding=True))
        & sessions.c.live_name.is_not(None),
    )
).order_by(sessions.c.sequence)


async def existing_sessions(
    tx: AsyncConnection, new_sessions: Sequence[NewSession]
) -> dict[str, SessionRow]:
    """Return the live sessions to use instead of new sessions, by the id of the new session.

    Raises
    ------
    AlreadyExists
        If a live session with that name, or on that Hub server, has another specification and may
        not be reused.
    """
    by_name: dict[tuple[str, str], SessionRow] = {}
    by_server: dict[tuple[str, str], SessionRow] = {}
    for start in range(0, len(new_sessions), CHUNK):
        part = new_sessions[start : start + CHUNK]
        wanted = {
            "owners": sorted({new.owner_id for new in part}),
            "names": [new.name for new in part],
            "users": sorted({new.hub_user for new in part}),
            "servers": [new.hub_server for new in part],
        }
        rows = [row_of(row) for row in await tx.execute(_CONFLICTING, wanted)]
        by_name |= {(row.owner_id, row.name): row for row in rows}
        by_server |= {(row.hub_user, row.hub_server): row for row in rows}
    existing: dict[str, SessionRow] = {}
    for new in new_sessions:
        named = by_name.get((new.owner_id, new.name))
        row = named or by_server.get((new.hub_user, new.hub_server))
        if row is None:
            continue
        if row.request_hash != new.request_hash and not (new.reuse and named):
            raise _name_conflict(row) if named else _server_conflict(row)
        existing[new.id] = row
    return existing


def _name_conflict(row: SessionRow) -> AlreadyExists:
    return AlreadyExists(
        f"a session named {row.name!r} is {row.status} and has a different specification; "
        "use another name, stop that session, or set `reuse` to get the existing session",
        session=row.id,
        name=row.name,
        status=row.status,
    )


def _server_conflict(row: SessionRow) -> AlreadyExists:
    return AlreadyExists(
        f"the Hub server {row.hub_server!r} belongs to the session {row.name!r}, which is "
        f"{row.status} and has a different specification; use another server or stop that session",
        session=row.id,
        name=row.name,
        status=row.status,
    )


async def check_pending(tx: AsyncConnection, new_sessions: Sequence[NewSession]) -> None:
    """Raise ``QuotaExceeded`` if new sessions of a keypair exceed a cap on pending sessions.

    The check is exact, because creations are serialized (``next_sequences``).
    """
    if not new_sessions:
        return
    first = new_sessions[0]
    caps = await read_caps(tx, first.scopes)
    caps_with_limit = [one for one in caps.values() if one.limits_pending]
    if not caps_with_limit:
        return
    usage = await read_pending_usage(tx, caps_with_limit)
    usage_before = {scope: dict(used) for scope, used in usage.items()}
    requested = Counter[str]()
    for new in new_sessions:
        requested.update(policy.needs(new.total_slots))
    for new in new_sessions:
        violations = policy.pending_violations(
            caps_with_limit, new.total_slots, usage, usage_before=usage_before, requested=requested
        )
        policy.raise_if_violated(violations)
        policy.add(usage, first.scopes, new.total_slots)


def view_of(new: NewSession, row: SessionRow) -> SessionView:
    """Build the view of a new session without reading the database.

    The session must have no dependencies.
    """
    names = kernel_names(new.cluster_size)
    kernel_ids = (new.kernel_id, *new.sub_kernel_ids)
    return SessionView(
        row,
        tuple(
            KernelRow(
                id=kernel_id,
                session_id=new.id,
                **asdict(name),
                agent_id=None,
                progress={},
                injection=None,
                launched_at=None,
                container_id=None,
                usage=None,
                last_seen_at=None,
            )
            for kernel_id, name in zip(kernel_ids, names, strict=True)
        ),
    )


async def insert(
    tx: AsyncConnection, new_sessions: Sequence[NewSession], sequences: range, at: datetime
) -> None:
    """Insert the rows of sessions and of their kernels."""
    await tx.execute(
        sa.insert(sessions),
        [
            {
                **{name: getattr(new, name) for name in _SPEC_COLUMNS},
                "cluster_size": new.cluster_size,
                "sequence": sequence,
                "live_name": new.name,
                "status": Status.PENDING,
                "status_info": "",
                "reasons": [],
                "result": Result.UNDEFINED,
                "trace": new.trace,
                "is_pipeline_task": new.is_pipeline_task,
                "created_at": at,
                "status_changed_at": at,
            }
            for new, sequence in zip(new_sessions, sequences, strict=True)
        ],
    )
    await tx.execute(
        sa.insert(kernels),
        [
            {
                "id": kernel_id,
                "created_at": at,
                "session_id": new.id,
                **asdict(name),
                "progress": {},
            }
            for new in new_sessions
            for kernel_id, name in zip(
                (new.kernel_id, *new.sub_kernel_ids), kernel_names(new.cluster_size), strict=True
            )
        ],
    )
    elastic = {new.id: new.elasticity for new in new_sessions if new.elasticity is not None}
    await insert_elastic(tx, elastic)


async def open_callbacks(
    tx: AsyncConnection, new_sessions: Sequence[NewSession], at: datetime
) -> None:
    """Insert the callback delivery state of sessions with a callback URL."""
    callbacks = [{"session_id": new.id, "next_at": at} for new in new_sessions if new.callback_url]
    if callbacks:
        await tx.execute(sa.insert(session_callbacks), callbacks)


def resolve_dependencies(
    new_sessions: Sequence[NewSession], existing: Mapping[str, SessionRow]
) -> list[tuple[str, str]]:
    """Return pairs (session id, id of its dependency).

    If ``existing`` replaces a dependency with an existing session, the pair contains that session's
    id.
    """
    return [
        (new.id, existing[key].id if key in existing else key)
        for new in new_sessions
        for key in dict.fromkeys(new.dependencies)
    ]


async def mount_folders(tx: AsyncConnection, new: NewSession, at: datetime) -> None:
    """Insert the mounts of a session; raise ``InUse`` if a folder is not ready."""
    wanted = sorted({mount["vfolder_id"] for mount in new.mounts})
    if not wanted:
        return
    # The update locks the folders, so a concurrent deletion waits and then finds the mounts.
    locked = await tx.execute(
        sa.update(vfolders)
        .where(vfolders.c.id.in_(wanted), vfolders.c.status == VfolderStatus.READY)
        .values(last_used_at=at)
        .returning(vfolders.c.id)
    )
    unavailable = set(wanted) - set(locked.scalars())
    if unavailable:
        names = sorted(m["vfolder"] for m in new.mounts if m["vfolder_id"] in unavailable)
        raise InUse(f"folder {', '.join(names)} is no longer ready", vfolders=names)
    await tx.execute(
        sa.insert(vfolder_mounts),
        [
            {"session_id": new.id, "vfolder_id": m["vfolder_id"], "path": m["path"]}
            for m in new.mounts
        ],
    )
