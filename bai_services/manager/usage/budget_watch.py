"""Compute how much of each budget is spent; raise events, and stop sessions of spent budgets.

The amount is the sum of the stored hourly and daily totals of the period, and of the usage records
since the last total. The scheduler reads only the result.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import TextTemplate
from bai_services.core.notifications.events import Event, budget_warning
from bai_services.core.usage.budgets import (
    BudgetEvent,
    Mode,
    Period,
    is_blocked,
    month_of,
    reached_percent,
    spent_percent,
)
from bai_services.core.usage.model import Dimension
from bai_services.core.usage.periods import Interval, full_hour, next_full_hour, zone_of
from bai_services.db.usage.budgets import BudgetRow, BudgetState, BudgetStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.record_writes import time_of
from bai_services.db.usage.reports import UsageReportStore, UsageScope

from ..context import ManagerContext
from ..loop import Loop
from ..scheduling.lease import Lease
from ..sessions.planned_stops import PlannedStops

log = logging.getLogger(__name__)

TICK_SECONDS = 60.0
# Maximum number of sessions that one step stops.
_STOPS_PER_STEP = 100


class BudgetWatch:
    """Computes the spent amounts every ``TICK_SECONDS`` while this manager holds the lease.

    Events are written to the audit log (``budget.reached``), and project members are notified.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: BudgetStore,
        reports: UsageReportStore,
        prices: UsagePriceStore,
        stops: PlannedStops,
        lease: Lease,
    ) -> None:
        self._store = store
        self._reports = reports
        self._prices = prices
        self._stops = stops
        self._lease = lease
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed
        self._loop = Loop("budgets", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        if await self._lease.hold() is None:
            return
        await self.refresh()
        for session_id, project in await self._store.due_stops(self._clock(), _STOPS_PER_STEP):
            if await self._lease.hold() is None:
                return
            await self._stops.stop(session_id, TextTemplate.BUDGET_STOP.text(name=project))

    async def refresh(self) -> None:
        """Compute the spent amounts of all budgets now."""
        budgets = await self._store.all()
        if not budgets:
            return
        now = self._clock()
        spent = await self._spent(budgets, now)
        currency = (await self._prices.read()).currency
        states = [_state_of(budget, spent[budget.project_id], now) for budget in budgets]
        events = {
            event.project_id: event
            for budget, state in zip(budgets, states, strict=True)
            if (event := _event_of(budget, state, currency)) is not None
        }
        entries = {key: self._entry(event) for key, event in events.items()}
        notices = {
            state.project_id: _notice_of(budget, state, events[state.project_id])
            for budget, state in zip(budgets, states, strict=True)
            if state.project_id in events
        }
        written = await self._store.write_states(states, entries, notices)
        for event in events.values():
            if event.project_id in written:
                log.info("project %s has spent %d%% of its budget", event.project, event.percent)
        if any(
            (budget.blocked_at is None) is not (state.blocked_at is None)
            for budget, state in zip(budgets, states, strict=True)
        ):
            self._capacity_changed()

    def _entry(self, event: BudgetEvent) -> AuditEntry:
        return self._audit.system(
            "budget.reached",
            event.project_id,
            domain=event.domain,
            name=event.project,
            percent=event.percent,
            spent=round(event.spent, 2),
            amount=event.amount,
            is_blocked=event.is_blocked,
        )

    async def _spent(self, budgets: Sequence[BudgetRow], now: datetime) -> dict[str, float]:
        """Return the cost of the current period of each budget."""
        prices = await self._prices.read()
        done = await self._reports.done_until()
        until = int(now.timestamp())
        by_start: dict[int, list[str]] = defaultdict(list)
        ends = {}
        for budget in budgets:
            # Totals are stored per hour (UTC), so a period begins and ends at full hours, like the
            # months of reports.
            start, end = (next_full_hour(at.timestamp()) for at in period_of(budget, now))
            by_start[start].append(budget.project_id)
            ends[budget.project_id] = max(start, min(until, end))
        spent: dict[str, float] = dict.fromkeys(ends, 0.0)
        for start, project_ids in by_start.items():
            by_end: dict[int, list[str]] = defaultdict(list)
            for project_id in project_ids:
                by_end[ends[project_id]].append(project_id)
            for end, keys in by_end.items():
                counted = start if done is None else min(max(full_hour(done), start), end)
                counted = full_hour(counted)
                scope = UsageScope(Dimension.PROJECT, keys=tuple(keys))
                for found in await self._reports.sums(scope, Interval(start, counted)):
                    spent[found.key] += found.measures.cost or 0.0
                if counted < end:
                    for held in await self._store.held(keys, Interval(counted, end)):
                        cost = prices.cost(held.resource_group, held.slot, held.amount_seconds)
                        spent[held.project_id] += cost or 0.0
        return spent


def period_of(budget: BudgetRow, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of the current period of a budget."""
    if budget.period == Period.FIXED and budget.starts_at is not None:
        return budget.starts_at, budget.ends_at or time_of(2**32)
    return month_of(now, zone_of(budget.time_zone))


def _state_of(budget: BudgetRow, spent: float, now: datetime) -> BudgetState:
    start, end = period_of(budget, now)
    is_new_period = budget.spent_since != start
    percents = {*budget.warn_percents, 100}
    # Before the period begins, nothing is reached: a budget of 0 would otherwise be spent.
    reached = reached_percent(percents, spent, budget.amount) if start <= now else 0
    reported = 0 if is_new_period else budget.reported_percent
    is_spent = start <= now < end and is_blocked(Mode(budget.mode), spent, budget.amount)
    since = budget.blocked_at if budget.blocked_at is not None and not is_new_period else now
    return BudgetState(
        project_id=budget.project_id,
        version=budget.version,
        reported_before=budget.reported_percent,
        spent=spent,
        spent_at=now,
        spent_since=start,
        reported_percent=max(reported, reached),
        blocked_at=since if is_spent else None,
    )


def _event_of(budget: BudgetRow, state: BudgetState, currency: str) -> BudgetEvent | None:
    """Return an event if the spent percentage exceeds the last reported one, otherwise None."""
    is_new_period = budget.spent_since != state.spent_since
    reported = 0 if is_new_period else budget.reported_percent
    if state.reported_percent <= reported:
        return None
    return BudgetEvent(
        at=state.spent_at,
        project_id=budget.project_id,
        project=budget.project,
        domain=budget.domain,
        percent=state.reported_percent,
        spent=state.spent,
        amount=float(budget.amount),
        currency=currency,
        is_blocked=state.blocked_at is not None,
    )


def _notice_of(budget: BudgetRow, state: BudgetState, event: BudgetEvent) -> Event:
    stops_at = None
    if state.blocked_at is not None and budget.stop_after_minutes is not None:
        stops_at = state.blocked_at + timedelta(minutes=budget.stop_after_minutes)
    return budget_warning(
        budget.project_id,
        event.at,
        event.domain,
        event.project,
        state.spent_since.isoformat(),
        event.percent,
        spent_percent=spent_percent(state.spent, budget.amount),
        is_blocked=event.is_blocked,
        stops_at=stops_at,
    )
