"""Replays of the history of a resource group under other policies, in worker processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any
from uuid import uuid4

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.records import ResourceGroup
from bai_services.core.counts import counted
from bai_services.core.errors import BaiError, InUse, InvalidRequest, NotFound, RateLimited
from bai_services.core.scheduling.queue import Order
from bai_services.core.scheduling.replay.comparison import CURRENT, Comparison, FullComparison
from bai_services.core.scheduling.replay.policies import OPTIONS, SCHEDULER, ReplayPolicy
from bai_services.db.scheduling.record import RecordStore

from ..accounts import authorizer
from ..context import ManagerContext
from ..scheduling.jit_warmup import JitWarmup
from ..scheduling.replay_process import CPU_SECONDS, MEMORY_BYTES, run_replay
from ..scheduling.replay_worker import ReplayTask
from .resource_groups import ResourceGroups

log = logging.getLogger(__name__)

MAX_SESSIONS = 20_000
MAX_DAYS = 92
MAX_POLICIES = 2
# There is no history before this time, and some earlier times cannot be converted to UTC.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# Maximum number of replays that run at the same time; each has a worker process.
MAX_RUNNING = 2
# Ended replays are kept in memory: at most this number, for at most ``KEEP_FOR``. Each request
# discards older ones.
MAX_KEPT = 20
KEEP_FOR = timedelta(hours=24)


class ReplayStatus(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay without its result.

    ``progress`` is the finished part, 0 to 1. ``ended_at`` is None while the replay runs.
    ``username`` is the user who started the replay, empty if the caller may not see that user.
    ``policies`` are the names of the policies that are compared with the current policy. ``error``
    says why the replay failed, and is empty if it did not fail.
    """

    id: str
    resource_group: str
    status: ReplayStatus
    progress: float
    created_at: datetime
    ended_at: datetime | None
    username: str
    since: datetime
    until: datetime
    policies: tuple[str, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of a resource group, the newest first."""

    replays: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replay and its comparison; ``comparison`` is None unless the replay is done."""

    replay: Replay
    comparison: Comparison | None


@dataclass(slots=True)
class _Entry:
    id: str
    starter: Caller
    group: str
    created_at: datetime
    since: datetime
    until: datetime
    policies: tuple[str, ...]
    status: ReplayStatus = ReplayStatus.RUNNING
    progress: float = 0.0
    ended_at: datetime | None = None
    error: str = ""
    result: FullComparison | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def set_progress(self, part: float) -> None:
        self.progress = part

    def end(self, status: ReplayStatus, at: datetime, error: str = "") -> None:
        self.status, self.ended_at, self.error = status, at, error


class GroupReplays:
    """Starts, observes and cancels replays. They are lost when the manager ends."""

    def __init__(
        self, context: ManagerContext, groups: ResourceGroups, jit_warmup: JitWarmup
    ) -> None:
        self._store = RecordStore(context.database)
        self._clock = context.clock
        self._groups = groups
        self._jit_warmup = jit_warmup
        self._entries: dict[str, _Entry] = {}

    async def stop(self) -> None:
        """Kill the worker processes."""
        running = [e.task for e in self._entries.values() if e.task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def page(self, caller: Caller, group: str) -> Replays:
        authorizer.require(caller, "replay.read")
        await self._groups.get(caller, group)
        self._discard_old()
        replays = [_view(entry, caller) for entry in self._entries.values() if entry.group == group]
        return Replays(tuple(reversed(replays)))

    async def get(self, caller: Caller, group: str, replay_id: str) -> ReplayResult:
        """Return a replay. Its result names only projects and users whom the caller may see."""
        authorizer.require(caller, "replay.read")
        entry = await self._find(caller, group, replay_id)
        if entry.result is None:
            return ReplayResult(_view(entry, caller), None)
        visible = authorizer.visibility(caller, "user.read")
        return ReplayResult(_view(entry, caller), entry.result.visible_in(visible.domain))

    async def create(self, caller: Caller, group: str, spec: Mapping[str, Any]) -> Replay:
        """Start a replay of a period under the current policy and up to two others.

        Raises
        ------
        InvalidRequest
            If the period or a policy is invalid, or the period has too many sessions.
        InUse
            If the caller already runs a replay.
        RateLimited
            If other users already run the maximum number of replays.
        """
        authorizer.require(caller, "replay.create")
        resource_group = await self._groups.get(caller, group)
        now = self._clock()
        since, until = _period(spec["since"], spec.get("until") or now, now)
        current = ReplayPolicy.of(
            {SCHEDULER: resource_group.scheduler, OPTIONS: resource_group.scheduler_opts}, CURRENT
        )
        others = [_policy(resource_group, policy) for policy in spec["policies"]]
        _check_names([policy.name for policy in others])
        await self._check_sessions(group, since, until)
        self._check_running(caller)
        self._discard_old()
        entry = _Entry(
            id=str(uuid4()),
            starter=caller,
            group=group,
            created_at=now,
            since=since,
            until=until,
            policies=tuple(policy.name for policy in others),
        )
        self._entries[entry.id] = entry
        entry.task = asyncio.create_task(self._run(entry, current, others), name="replay")
        return _view(entry, caller)

    async def cancel(self, caller: Caller, group: str, replay_id: str) -> Replay:
        """Kill the worker process of a replay; a replay that has ended is unchanged."""
        authorizer.require(caller, "replay.create")
        entry = await self._find(caller, group, replay_id)
        if entry.starter.user_id != caller.user_id:
            authorizer.require(caller, "replay.cancel")
        if entry.task is not None:
            entry.task.cancel()
            await asyncio.gather(entry.task, return_exceptions=True)
        return _view(entry, caller)

    async def _find(self, caller: Caller, group: str, replay_id: str) -> _Entry:
        await self._groups.get(caller, group)
        self._discard_old()
        entry = self._entries.get(replay_id)
        if entry is None or entry.group != group:
            raise NotFound(
                f"there is no replay {replay_id[:80]} of resource group {group}; only the last "
                f"{MAX_KEPT} ended replays are kept, for at most a day, and all are lost when the "
                "manager restarts"
            )
        return entry

    async def _check_sessions(self, group: str, since: datetime, until: datetime) -> None:
        count = await self._store.count(group, since, until)
        if count > MAX_SESSIONS:
            raise InvalidRequest(
                f"resource group {group} had {counted(count, 'sessions')} in this period; at most "
                f"{MAX_SESSIONS} are replayed; choose a shorter period",
                field="since",
                sessions=count,
                limit=MAX_SESSIONS,
            )

    def _check_running(self, caller: Caller) -> None:
        running = [e for e in self._entries.values() if e.status is ReplayStatus.RUNNING]
        for entry in running:
            if entry.starter.user_id == caller.user_id:
                raise InUse(
                    f"you already run a replay of resource group {entry.group}; wait for it, or "
                    "cancel it",
                    replay=entry.id,
                    resource_group=entry.group,
                )
        if len(running) >= MAX_RUNNING:
            raise RateLimited(
                f"other users run {counted(len(running), 'replays')}; try again when one has ended"
            )

    def _discard_old(self) -> None:
        now = self._clock()
        ended = [(e.ended_at, e.id) for e in self._entries.values() if e.ended_at is not None]
        ended.sort(key=itemgetter(0), reverse=True)
        for number, (ended_at, replay_id) in enumerate(ended):
            if number >= MAX_KEPT or now - ended_at > KEEP_FOR:
                del self._entries[replay_id]

    async def _run(
        self, entry: _Entry, current: ReplayPolicy, others: Sequence[ReplayPolicy]
    ) -> None:
        try:
            # Wait for the warm-up, because the worker loads the compiled code from the cache that
            # the warm-up fills.
            await self._jit_warmup.wait()
            fair = [p for p in (current, *others) if p.order is Order.FAIR_SHARE]
            record = await self._store.read(
                entry.group,
                entry.since,
                entry.until,
                lookback_days=max((p.options.fair_share.lookback_days for p in fair), default=0),
            )
            task = ReplayTask(
                record,
                entry.since,
                entry.until,
                self._clock(),
                current,
                tuple(others),
                MEMORY_BYTES,
                CPU_SECONDS,
            )
            entry.result = await run_replay(task, entry.set_progress)
        except asyncio.CancelledError:
            entry.end(ReplayStatus.CANCELLED, self._clock())
            raise
        except BaiError as error:
            entry.end(ReplayStatus.FAILED, self._clock(), error.message)
        except Exception:
            log.exception("replay %s failed", entry.id)
            entry.end(ReplayStatus.FAILED, self._clock(), "internal error")
        else:
            entry.progress = 1.0
            entry.end(ReplayStatus.DONE, self._clock())
        finally:
            entry.task = None


def _view(entry: _Entry, caller: Caller) -> Replay:
    visible = authorizer.visibility(caller, "user.read")
    is_visible = visible.domain in (None, entry.starter.domain)
    return Replay(
        id=entry.id,
        resource_group=entry.group,
        status=entry.status,
        progress=entry.progress,
        created_at=entry.created_at,
        ended_at=entry.ended_at,
        username=entry.starter.username if is_visible else "",
        since=entry.since,
        until=entry.until,
        policies=entry.policies,
        error=entry.error,
    )


def _period(since: datetime, until: datetime, now: datetime) -> tuple[datetime, datetime]:
    until = min(until, now)
    if since >= until:
        raise InvalidRequest("since must be before until, and in the past", field="since")
    if until - since > timedelta(days=MAX_DAYS):
        raise InvalidRequest(
            f"the period is longer than the maximum of {MAX_DAYS} days; choose a later since or an "
            "earlier until",
            field="since",
        )
    if since < EARLIEST:
        raise InvalidRequest(f"since must not be before the year {EARLIEST.year}", field="since")
    # Usage is recorded per day in UTC.
    return since.astimezone(UTC), until.astimezone(UTC)


def _policy(group: ResourceGroup, spec: Mapping[str, Any]) -> ReplayPolicy:
    """Return the policy of a group with the changes of ``spec``.

    Its name contains the order, the placement policy and the backfill mode.
    """
    options = {**group.scheduler_opts, **(spec.get(OPTIONS) or {})}
    scheduler = spec.get(SCHEDULER) or group.scheduler
    policy = ReplayPolicy.of({SCHEDULER: scheduler, OPTIONS: options}, str(scheduler))
    rules = (policy.order, policy.options.placement, policy.options.backfill)
    return ReplayPolicy(" / ".join(rules), policy.order, policy.options)


def _check_names(names: Sequence[str]) -> None:
    """Raise ``InvalidRequest`` if two policies have the same name; they then also have the same
    rules.
    """
    for number, name in enumerate(names, 1):
        if (first := names.index(name) + 1) < number:
            raise InvalidRequest(
                f"policies {first} and {number} are equal ({name}); change or remove one",
                field="policies",
            )
