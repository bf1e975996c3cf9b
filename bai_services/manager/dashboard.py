"""Content of the dashboard: everything that its cards show, in one response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bai_services.core.accounts.roles import Caller, Reach, reach
from bai_services.core.cluster.records import Agent, AgentTotals
from bai_services.core.errors import Forbidden
from bai_services.core.listing import ListQuery
from bai_services.core.sessions.lifecycle import LIVE, SessionType, Status
from bai_services.core.sessions.options import SessionQuotas
from bai_services.core.sessions.records import Session

from .cluster.agents import Agents
from .folders.quotas import Quotas, QuotaScope
from .sessions.requests.options import Options
from .sessions.sessions import Sessions

MAX_RECENT = 5
MAX_QUEUED = 5
MAX_RUNNING = 20
MAX_AGENTS = 10
MAX_STORAGE = 100
_LIVE = ",".join(status for status in Status if status in LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCounts:
    """Numbers of sessions; more than 1,000 are counted as 1,001.

    ``interactive`` and ``batch`` count running sessions. ``pending`` includes sessions that are
    placed, but have not begun to start.
    """

    interactive: int
    batch: int
    starting: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Sessions, quotas, resources and queue of the caller.

    ``counts`` and ``recent`` contain the sessions of all users if ``is_of_all`` is true.
    ``quotas`` is None for callers who may not create sessions. ``agent_totals`` and ``agents`` are
    None if ``is_of_all`` is false.
    """

    is_of_all: bool
    counts: SessionCounts
    recent: Sequence[Session]
    queued: Sequence[Session]
    running: Sequence[Session]
    quotas: SessionQuotas | None
    storage: Sequence[QuotaScope]
    agent_totals: AgentTotals | None
    agents: Sequence[Agent] | None


class Dashboards:
    """Composes the dashboard of a caller from the results of other services."""

    def __init__(
        self, sessions: Sessions, options: Options, quotas: Quotas, agents: Agents
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._quotas = quotas
        self._agents = agents

    async def get(self, caller: Caller, project: str | None, group: str | None) -> Dashboard:
        """Return the dashboard; ``project`` and ``group`` select the quotas.

        ``project`` is the id or name of a project of the caller. If it is given, only recently
        created sessions of this project are returned.

        Raises
        ------
        Forbidden
            If the caller is not a user.
        BaiError
            The errors of ``Options.quotas``.
        """
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} is a system component, not a user")
        sees_all = reach(caller.role, "session.read") is Reach.ALL
        own = {"owner": caller.username}
        shown = {} if sees_all else own
        of_project = {}
        if project:
            of_project = {"project_id": await self._options.project_id(caller, project)}
        may_create = reach(caller.role, "session.create") is not Reach.NONE
        storage = ListQuery(limit=MAX_STORAGE, filters={"mine": "true"})
        agents = ListQuery(limit=MAX_AGENTS, sort=("id",), filters={"status": "ALIVE"})
        return Dashboard(
            is_of_all=sees_all,
            counts=await self._counts(caller, shown),
            recent=await self._newest(
                caller, MAX_RECENT, {"status__in": _LIVE, **shown, **of_project}
            ),
            queued=await self._newest(caller, MAX_QUEUED, {"status": Status.PENDING, **own}),
            running=await self._newest(caller, MAX_RUNNING, {"status": Status.RUNNING, **own}),
            quotas=await self._options.quotas(caller, project, group) if may_create else None,
            storage=(await self._quotas.page(caller, storage)).items,
            agent_totals=await self._agents.totals(caller) if sees_all else None,
            agents=(await self._agents.page(caller, agents)).items if sees_all else None,
        )

    async def _counts(self, caller: Caller, shown: Mapping[str, str]) -> SessionCounts:
        async def count(statuses: Sequence[Status], **filters: str) -> int:
            filters |= {"status__in": ",".join(statuses), **shown}
            return (await self._sessions.page(caller, ListQuery(limit=1, filters=filters))).total

        return SessionCounts(
            interactive=await count([Status.RUNNING], type=SessionType.INTERACTIVE),
            batch=await count([Status.RUNNING], type=SessionType.BATCH),
            starting=await count([Status.PREPARING, Status.PREPARED]),
            pending=await count([Status.PENDING, Status.SCHEDULED]),
        )

    async def _newest(
        self, caller: Caller, limit: int, filters: Mapping[str, str]
    ) -> Sequence[Session]:
        return (await self._sessions.page(caller, ListQuery(limit=limit, filters=filters))).items
