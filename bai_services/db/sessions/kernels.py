"""Store of kernels: their agents, progress, launch plans, containers and logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.sessions.agent_launch import BY_AGENT, BY_MANAGER
from bai_services.core.sessions.kernel_group import MAIN, MAIN_HOST
from bai_services.core.sessions.lifecycle import ENDED, OCCUPYING, SessionType, Status
from bai_services.core.sessions.suspensions import Phase

from ..database import Database
from ..scheduling.caps import CHUNK
from ..tables.accounts import users
from ..tables.cluster import agents, images
from ..tables.sessions import allocations, kernel_attempts, kernels, sessions
from ..tables.suspensions import session_suspensions
from . import attempt_logs
from .rows import SELECT, SessionRow, SessionView, read_by_id, read_views, row_of, stored_log


@dataclass(frozen=True, slots=True)
class KernelState:
    """A kernel, its session and the session's status."""

    kernel_id: str
    session_id: str
    agent_id: str | None
    status: Status
    status_changed_at: datetime
    container_id: str | None
    session_type: str = ""
    role: str = MAIN
    hostname: str = MAIN_HOST
    cluster_size: int = 1
    restart_count: int = 0
    # The agent with the home directory of a stopped session that will run again.
    home_agent_id: str | None = None
    started_by: str = BY_MANAGER
    # Whether the session is being suspended or preempted, so that its home must be kept after the
    # stop.
    is_suspending: bool = False

    def keeps_home_on(self, agent_id: str) -> bool:
        """Return whether this agent must keep the session's home although no kernel runs there."""
        if self.status in ENDED:
            return False
        return self.is_suspending or (
            self.home_agent_id == agent_id and self.status not in OCCUPYING
        )


@dataclass(frozen=True, slots=True)
class KernelWork:
    """A kernel that its agent must prepare, or, in a session without a Hub server, start or stop.

    ``is_prepared``: its agent has prepared it, but perhaps not yet the other kernels.
    """

    kernel_id: str
    hostname: str
    session_id: str
    status: Status
    restart_count: int
    is_prepared: bool


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Data for a launch plan that the session's row does not contain.

    The fields describe the agent of the main kernel, the image, and the owner.
    """

    agent_id: str
    agent_status: str
    engine: str
    endpoint: str
    image_labels: Mapping[str, Any]
    image_digest: str
    uid: int | None
    gid: int | None
    role: str


@dataclass(frozen=True, slots=True)
class KernelAgent:
    """The agent of one kernel."""

    agent_id: str
    agent_status: str
    endpoint: str


# Statuses in which the manager issues a session's launch plan and accepts reports of containers.
_LAUNCHED = (Status.PREPARED, Status.RUNNING)

# Built once, at import, because these queries run at every start of a session.
_OF_SESSION: sa.BindParameter[str] = sa.bindparam("of_session")
_BY_IDS = SELECT.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True))).order_by(
    sessions.c.sequence
)
_WORK = (
    sa.select(
        kernels.c.id.label("kernel_id"),
        kernels.c.hostname,
        kernels.c.session_id,
        sessions.c.status,
        sessions.c.restart_count,
        kernels.c.injection.is_not(None).label("is_prepared"),
    )
    .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
    .where(
        kernels.c.agent_id == sa.bindparam("of_agent"),
        sessions.c.status.in_((Status.SCHEDULED, Status.PREPARING))
        | (
            sessions.c.status.in_((Status.PREPARED, Status.TERMINATING))
            & (sessions.c.started_by == BY_AGENT)
        ),
    )
    .order_by(sessions.c.sequence, kernels.c.id)
)
_LAUNCH_FACTS = (
    sa.select(
        sessions.c.id.label("session_id"),
        agents.c.id.label("agent_id"),
        agents.c.status.label("agent_status"),
        agents.c.engine,
        agents.c.endpoint,
        images.c.labels.label("image_labels"),
        images.c.digest.label("image_digest"),
        users.c.container_uid.label("uid"),
        users.c.container_gid.label("gid"),
        users.c.role,
    )
    .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
    .join(agents, kernels.c.agent_id == agents.c.id)
    .join(users, sessions.c.owner_id == users.c.id)
    .outerjoin(
        images,
        (images.c.name == sessions.c.image) & (images.c.architecture == sessions.c.architecture),
    )
    .where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)), kernels.c.role == MAIN)
)
# The uid and gid of the processes of a session.
_USER_IDS = (
    sa.select(sessions.c.id, users.c.container_uid.label("uid"), users.c.container_gid.label("gid"))
    .join_from(sessions, users, sessions.c.owner_id == users.c.id)
    .where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
)
_LOCK = sa.update(sessions).where(sessions.c.id == _OF_SESSION).values(sequence=sessions.c.sequence)
_MARK_LAUNCHED = (
    sa.update(kernels)
    .where(
        kernels.c.session_id.in_(
            # Lock the session's row, to serialize this update with a concurrent stop.
            sa.select(sessions.c.id)
            .where(
                sessions.c.id == _OF_SESSION,
                sessions.c.status.in_(_LAUNCHED),
            )
            .with_for_update()
        )
    )
    .values(
        launched_at=sa.func.coalesce(
            kernels.c.launched_at, sa.bindparam("at", type_=kernels.c.launched_at.type)
        )
    )
)


_IS_STOPPED_BY_SUSPENSION = sa.exists().where(
    session_suspensions.c.session_id == sessions.c.id,
    session_suspensions.c.phase == Phase.STOPPING,
)
_IS_PREEMPTED = (
    sessions.c.is_requeued_at_end
    & (sessions.c.type == SessionType.INTERACTIVE)
    & (sessions.c.cluster_size == 1)
)
_IS_SUSPENDING = (_IS_STOPPED_BY_SUSPENSION | _IS_PREEMPTED).label("is_suspending")
_STATES = sa.select(
    kernels.c.id.label("kernel_id"),
    kernels.c.session_id,
    kernels.c.agent_id,
    sessions.c.status,
    sessions.c.status_changed_at,
    kernels.c.container_id,
    sessions.c.type.label("session_type"),
    kernels.c.role,
    kernels.c.hostname,
    sessions.c.cluster_size,
    sessions.c.restart_count,
    sessions.c.home_agent_id,
    sessions.c.started_by,
    _IS_SUSPENDING,
).join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
_EXPECTED = _STATES.where(
    kernels.c.agent_id.in_(sa.bindparam("agents", expanding=True)),
    sessions.c.status.in_(sorted(OCCUPYING)),
)
_REPORTED = _STATES.where(kernels.c.id.in_(sa.bindparam("ids", expanding=True)))
_SET_SEEN = (
    sa.update(kernels)
    .where(kernels.c.id == sa.bindparam("key"), kernels.c.agent_id == sa.bindparam("of_agent"))
    .values(last_seen_at=sa.bindparam("at", type_=kernels.c.last_seen_at.type))
)
_SET_USAGE = _SET_SEEN.values(usage=sa.bindparam("usage", type_=kernels.c.usage.type))
_SET_CONTAINER = sa.update(kernels).where(
    kernels.c.session_id == _OF_SESSION, kernels.c.hostname == sa.bindparam("of_host")
)


def _state_of(row: sa.RowMapping) -> KernelState:
    status, is_suspending = Status(row["status"]), bool(row["is_suspending"])
    return KernelState(**{**row, "status": status, "is_suspending": is_suspending})


def _at(at: datetime) -> sa.BindParameter[datetime]:
    return sa.bindparam("at", at, type_=kernels.c.launched_at.type)


class KernelStore:
    """Reads and writes kernels. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def work_of(self, agent_id: str) -> list[KernelWork]:
        """Return the kernels that an agent may have to process, kernels of older sessions first."""
        async with self._db.read() as tx:
            found = await tx.execute(_WORK, {"of_agent": agent_id})
            return [
                KernelWork(**{**row, "status": Status(row["status"])}) for row in found.mappings()
            ]

    async def views(self, session_ids: Sequence[str]) -> list[SessionView]:
        """Return sessions, oldest first."""
        if not session_ids:
            return []
        views: list[SessionView] = []
        async with self._db.read() as tx:
            for start in range(0, len(session_ids), CHUNK):
                ids = session_ids[start : start + CHUNK]
                found = await tx.execute(_BY_IDS, {"ids": ids})
                views += await read_views(tx, [row_of(row) for row in found])
        return views

    async def observe(
        self, reports: Mapping[str, Mapping[str, Mapping[str, Any] | None]], at: datetime
    ) -> dict[str, list[KernelState]]:
        """Store the usage of kernels from heartbeats: by agent, then by kernel id.

        The usage of a kernel that is not on the reporting agent is ignored.

        Return, for each agent, the states of all reported kernels that exist and of all kernels
        that should be on the agent.
        """
        reporters: dict[str, list[str]] = defaultdict(list)
        used: list[dict[str, Any]] = []
        seen: list[dict[str, Any]] = []
        for agent_id, kernels_of_agent in sorted(reports.items()):
            for kernel_id, usage in sorted(kernels_of_agent.items()):
                reporters[kernel_id].append(agent_id)
                mark = {"key": kernel_id, "of_agent": agent_id, "at": at}
                if usage is None:
                    seen.append(mark)
                else:
                    used.append({**mark, "usage": dict(usage)})
        async with self._db.write() as tx:
            if used:
                await tx.execute(_SET_USAGE, used)
            if seen:
                await tx.execute(_SET_SEEN, seen)
            rows = list((await tx.execute(_EXPECTED, {"agents": sorted(reports)})).mappings())
            missing = sorted(reporters.keys() - {row["kernel_id"] for row in rows})
            for start in range(0, len(missing), CHUNK):
                chunk = {"ids": missing[start : start + CHUNK]}
                rows += (await tx.execute(_REPORTED, chunk)).mappings()
        found: dict[str, list[KernelState]] = {agent_id: [] for agent_id in reports}
        for row in sorted(rows, key=lambda row: str(row["kernel_id"])):
            state = _state_of(row)
            for agent_id in {*reporters[state.kernel_id], state.agent_id or ""} & found.keys():
                found[agent_id].append(state)
        return found

    async def set_progress(self, kernel_id: str, progress: Mapping[str, Any]) -> bool:
        """Store the progress of a preparation; return whether the progress has changed."""
        async with self._db.write() as tx:
            have = await tx.scalar(sa.select(kernels.c.progress).where(kernels.c.id == kernel_id))
            if have is None or have == dict(progress):
                return False
            await tx.execute(
                sa.update(kernels).where(kernels.c.id == kernel_id).values(progress=dict(progress))
            )
            return True

    async def has_left(self, session_id: str, agent_id: str) -> bool:
        """Return whether an earlier placement of a session on this agent was cancelled."""
        earlier = sa.exists().where(
            allocations.c.session_id == session_id,
            allocations.c.agent_id == agent_id,
            allocations.c.freed_at.is_not(None),
        )
        async with self._db.read() as tx:
            return bool(await tx.scalar(sa.select(earlier)))

    async def set_injection(
        self,
        session_id: str,
        kernel_id: str,
        injection: Mapping[str, Any],
        fence_seconds: int | None,
    ) -> bool:
        """Store the injection that an agent prepared for one kernel, and its ``fence_seconds``.

        Return whether all kernels of the session are prepared.
        """
        preparing = sa.select(sessions.c.id).where(
            sessions.c.id == session_id, sessions.c.status == Status.PREPARING
        )
        async with self._db.write() as tx:
            # Serialize concurrent calls for one session: the last call must see all kernels.
            await tx.execute(_LOCK, {"of_session": session_id})
            await tx.execute(
                sa.update(kernels)
                .where(kernels.c.id == kernel_id, kernels.c.session_id.in_(preparing))
                .values(injection=dict(injection), progress={}, fence_seconds=fence_seconds)
            )
            rows = await tx.execute(
                sa.select(kernels.c.injection).where(kernels.c.session_id == session_id)
            )
            return all(injection is not None for injection in rows.scalars())

    async def kernel_agents(self, session_id: str) -> dict[str, KernelAgent]:
        """Return the agents of a session's kernels, by kernel id."""
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(
                    kernels.c.id,
                    agents.c.id.label("agent_id"),
                    agents.c.status.label("agent_status"),
                    agents.c.endpoint,
                )
                .join_from(kernels, agents, kernels.c.agent_id == agents.c.id)
                .where(kernels.c.session_id == session_id)
            )
            return {
                row.id: KernelAgent(row.agent_id, row.agent_status, row.endpoint) for row in rows
            }

    async def user_ids(
        self, session_ids: Sequence[str]
    ) -> dict[str, tuple[int | None, int | None]]:
        """Return (uid, gid) of the owner of each session, by session id."""
        found: dict[str, tuple[int | None, int | None]] = {}
        async with self._db.read() as tx:
            for start in range(0, len(session_ids), CHUNK):
                rows = await tx.execute(_USER_IDS, {"ids": session_ids[start : start + CHUNK]})
                found |= {row.id: (row.uid, row.gid) for row in rows}
        return found

    async def launch_facts(self, session_ids: Sequence[str]) -> dict[str, LaunchFacts]:
        """Return the input of launch plans, by session id; sessions without an agent are absent."""
        facts: dict[str, LaunchFacts] = {}
        async with self._db.read() as tx:
            for start in range(0, len(session_ids), CHUNK):
                found = await tx.execute(_LAUNCH_FACTS, {"ids": session_ids[start : start + CHUNK]})
                for row in found.mappings():
                    # The image may no longer be registered.
                    of_image = {
                        "image_labels": row["image_labels"] or {},
                        "image_digest": row["image_digest"] or "",
                    }
                    values = {**row, **of_image}
                    session_id = values.pop("session_id")
                    facts[session_id] = LaunchFacts(**values)
        return facts

    async def mark_launched(self, session_id: str, at: datetime) -> bool:
        """Record that the launch plan was issued; return False if the status does not allow it."""
        async with self._db.write() as tx:
            marked = await tx.execute(_MARK_LAUNCHED, {"of_session": session_id, "at": at})
            return marked.rowcount > 0

    async def mark_all_launched(self, session_ids: Sequence[str], at: datetime) -> set[str]:
        """Record that the launch plans of sessions were issued; return those that are PREPARED."""
        marked: set[str] = set()
        async with self._db.write() as tx:
            for start in range(0, len(session_ids), CHUNK):
                # Lock the rows, to serialize this update with a concurrent stop.
                found = await tx.execute(
                    sa.select(sessions.c.id)
                    .where(
                        sessions.c.id.in_(session_ids[start : start + CHUNK]),
                        sessions.c.status == Status.PREPARED,
                    )
                    .order_by(sessions.c.id)
                    .with_for_update()
                )
                ids = list(found.scalars())
                await tx.execute(
                    sa.update(kernels)
                    .where(kernels.c.session_id.in_(ids))
                    .values(launched_at=sa.func.coalesce(kernels.c.launched_at, _at(at)))
                )
                marked |= set(ids)
        return marked

    async def set_containers(
        self, session_id: str, containers: Mapping[str, str]
    ) -> SessionRow | None:
        """Store the containers that the spawner has started, by hostname.

        Return the session, or None if it does not exist. The containers are stored only in the
        statuses PREPARED and RUNNING.
        """
        async with self._db.write() as tx:
            row = next(iter(await read_by_id(tx, session_id)), None)
            if row is not None and row.status in _LAUNCHED:
                marks = [
                    {"of_session": session_id, "of_host": hostname, "container_id": container_id}
                    for hostname, container_id in sorted(containers.items())
                ]
                await tx.execute(_SET_CONTAINER, marks)
        return row

    async def store_log(self, session_id: str, log: str, hostname: str = MAIN_HOST) -> None:
        """Store the output of an ended kernel, unless an output is already stored."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(kernels)
                .where(
                    kernels.c.session_id == session_id,
                    kernels.c.hostname == hostname,
                    sa.func.coalesce(kernels.c.log, "") == "",
                )
                .values(log=stored_log(log))
            )

    async def store_earlier_log(self, session_id: str, log: str, hostname: str = MAIN_HOST) -> None:
        """Store the output of the last attempt of a kernel before the current one, unless an output
        is already stored.
        """
        kernel_id = (
            sa.select(kernels.c.id)
            .where(kernels.c.session_id == session_id, kernels.c.hostname == hostname)
            .scalar_subquery()
        )
        last = (
            sa.select(sa.func.max(kernel_attempts.c.attempt))
            .where(kernel_attempts.c.kernel_id == kernel_id)
            .scalar_subquery()
        )
        is_last = sa.and_(
            kernel_attempts.c.kernel_id == kernel_id, kernel_attempts.c.attempt == last
        )
        async with self._db.write() as tx:
            await attempt_logs.add_log(tx, is_last, log)

    async def store_attempt_log(
        self, kernel_id: str, agent_id: str, attempt: int, log: str
    ) -> None:
        """Store the output of an attempt that has ended on an agent, unless an output is already
        stored.
        """
        is_attempt = sa.and_(
            kernel_attempts.c.kernel_id == kernel_id,
            kernel_attempts.c.agent_id == agent_id,
            kernel_attempts.c.attempt == attempt,
        )
        ending = sa.exists().where(
            sessions.c.id == kernels.c.session_id,
            sessions.c.restart_count == attempt,
            sessions.c.status == Status.TERMINATING,
        )
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(kernels)
                .where(kernels.c.id == kernel_id, kernels.c.agent_id == agent_id, ending)
                .where(sa.func.coalesce(kernels.c.log, "") == "")
                .values(log=stored_log(log))
            )
            await attempt_logs.add_log(tx, is_attempt, log)
