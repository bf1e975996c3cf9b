"""Carry out preemption plans: announce them, stop the victims, and end the plans."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from bai_services.core.accounts.roles import Caller
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event, session_preempted, session_stops
from bai_services.core.scheduling.preemption.options import PreemptionMode, PreemptionOptions
from bai_services.core.scheduling.preemption.plan import Preemption
from bai_services.core.scheduling.preemption.records import ListedPreemption, PlanOutcome
from bai_services.core.scheduling.preemption.texts import preemption_text
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.db.open_work import Work
from bai_services.db.scheduling.preemption import ActivePlan, PreemptionStore, Victim
from bai_services.db.scheduling.preemption_stops import VictimStop, VictimStops
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..accounts import authorizer
from ..audit import Audit
from ..clock import Clock
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from .preparation import CancelStop, PrepareStop, no_cancellation, no_preparation, prepare

TICK_SECONDS = 1.0
# Kind of the event for the owner of a victim: its preemption was announced or revoked.
PREEMPTION = "preemption"
_KEPT_FOR = timedelta(days=30)
_CLEANUP_INTERVAL_SECONDS = 3600.0


class Preemptions:
    """Carries out the plans that scheduling passes make.

    The database contains complete plans, and each step checks the statuses of the sessions again.
    Therefore another manager can continue a plan after any step.
    """

    def __init__(
        self,
        store: PreemptionStore,
        stops: VictimStops,
        sessions: SessionStore,
        lifecycle: Lifecycle,
        lease: Lease,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self._store = store
        self._stops = stops
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._lease = lease
        self._audit = audit
        self._clock = clock
        # Called when the preemption of a session is announced.
        self.prepare_stop: PrepareStop = no_preparation
        # Called when the plan ends and the session still runs.
        self.cancel_stop: CancelStop = no_cancellation
        self._preparing: dict[str, asyncio.Task[None]] = {}
        # While a plan is being dropped, no preparation of its victims begins.
        self._turn = asyncio.Lock()
        self._cleaned_at = -_CLEANUP_INTERVAL_SECONDS
        self._loop = lease.loop("preemption", self.step, TICK_SECONDS, Work.PREEMPTION)
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        tasks = list(self._preparing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def page(self, caller: Caller, query: ListQuery) -> Page[ListedPreemption]:
        """Return the preemptions of the last 30 days that involve sessions visible to the caller.

        The names of other sessions are omitted.
        """
        return await self._store.page(query, authorizer.visibility(caller, "preemption.read"))

    async def announce(
        self, preemption: Preemption, options: PreemptionOptions, token: int | None
    ) -> bool:
        """Store a new plan and notify the owners of its victims; return False if it is outdated.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token.
        """
        beneficiary = await self._sessions.find(preemption.session_id)
        entry = self._audit.system(
            "session.plan-preemption",
            beneficiary.id,
            domain=beneficiary.domain,
            owner_id=beneficiary.owner_id,
            name=beneficiary.name,
            resource_group=preemption.group,
            victims=[
                {"session_id": key, "rule": str(rule)} for key, rule in preemption.plan.victims
            ],
            stops_at=preemption.plan.stops_at.isoformat(),
        )
        now = self._clock()
        warnings = await self._warnings(preemption, options, now)
        is_stored = await self._store.commit(preemption, options, now, token, warnings, entry)
        if is_stored:
            await self._notify(preemption.plan.victim_ids)
            self._loop.wake()
        return is_stored

    async def _warnings(
        self, preemption: Preemption, options: PreemptionOptions, at: datetime
    ) -> list[Event]:
        """Return the warnings for the owners of the victims of a new plan."""
        plan, rules = preemption.plan, dict(preemption.plan.victims)
        return [
            session_stops(
                row.id,
                at,
                row.owner_id,
                row.domain or "",
                row.name,
                preemption_text(rules[row.id], preemption.group, row.priority),
                stops_at=plan.stops_at,
                is_requeued=options.mode is PreemptionMode.RESCHEDULE,
            )
            for row in await self._sessions.rows(list(plan.victim_ids))
        ]

    async def drop(self, session_id: str) -> None:
        """End the plan of a session that would not start with it; running victims continue."""
        async with self._turn:
            await self._end(PlanOutcome.DROPPED, session_id=session_id)

    async def step(self) -> None:
        """Carry out the next due action of each plan."""
        if await self._lease.hold() is None:
            return
        async with self._turn:
            await self._execute_plans()
        await self._clean_up()

    async def _execute_plans(self) -> None:
        plans = await self._store.active()
        for plan in plans:
            if plan.status is Status.PENDING and plan.is_blocked:
                await self._end(PlanOutcome.DROPPED, plan_id=plan.id)
                # Make the scheduler read the session again, without its plan.
                self._lifecycle.notify(await self._sessions.find(plan.session_id))
            elif plan.status is Status.PENDING:
                await self._continue(plan)
            elif plan.status in ENDED:
                await self._end(PlanOutcome.DROPPED, plan_id=plan.id)
            else:
                await self._end(PlanOutcome.STARTED, plan_id=plan.id)
        announced = {victim.session_id for plan in plans for victim in plan.victims}
        for session_id in self._preparing.keys() - announced:
            self._preparing.pop(session_id).cancel()

    async def _continue(self, plan: ActivePlan) -> None:
        """Prepare the victims for their stop; stop them when the grace period is over."""
        seconds = (plan.stops_at - self._clock()).total_seconds()
        # Ignore the other victims, which have ended or are being stopped.
        running = {victim.session_id: victim for victim in plan.victims if victim.is_running}
        if seconds > 0:
            self._loop.run_within(seconds)
            for session_id in running:
                self._prepare(session_id, seconds)
        elif running and (token := await self._lease.hold()) is not None:
            await self._stop_victims(plan, running, token)

    def _prepare(self, session_id: str, seconds: float) -> None:
        """Begin to prepare a victim once; a manager that takes over prepares it again."""
        if session_id not in self._preparing:
            self._preparing[session_id] = asyncio.create_task(
                prepare(self.prepare_stop, session_id, seconds), name=f"prepare-{session_id}"
            )

    async def _stop_victims(
        self, plan: ActivePlan, victims: Mapping[str, Victim], token: int
    ) -> None:
        now = self._clock()
        stops = {
            row.id: self._stop_of(plan, victims[row.id], row, now)
            for row in await self._sessions.rows(list(victims))
        }
        is_requeued = plan.mode is PreemptionMode.RESCHEDULE
        moved = await self._stops.stop(plan.id, stops, now, is_requeued=is_requeued, token=token)
        for transition in moved:
            self._lifecycle.announce(transition, stops[transition.row.id].reason)

    def _stop_of(
        self, plan: ActivePlan, victim: Victim, row: SessionRow, at: datetime
    ) -> VictimStop:
        reason = preemption_text(victim.rule, plan.resource_group, row.priority)
        entry = self._audit.system(
            "session.preempt",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            resource_group=plan.resource_group,
            rule=str(victim.rule),
            mode=str(plan.mode),
            for_session=plan.session_id,
        )
        notice = session_preempted(row.id, at, row.owner_id, row.domain or "", row.name, reason)
        return VictimStop(reason, notice, entry)

    async def _end(self, outcome: PlanOutcome, *, plan_id: str = "", session_id: str = "") -> None:
        victims = await self._store.end(
            outcome, self._clock(), plan_id=plan_id, session_id=session_id
        )
        for victim in victims:
            if (preparing := self._preparing.pop(victim, None)) is not None:
                preparing.cancel()
                await asyncio.wait([preparing])
            await self.cancel_stop(victim)
        await self._notify(victims)

    async def _notify(self, session_ids: Iterable[str]) -> None:
        for row in await self._sessions.rows(list(session_ids)):
            if row.status is Status.RUNNING:
                self._lifecycle.notify(row, PREEMPTION)

    async def _clean_up(self) -> None:
        if time.monotonic() - self._cleaned_at >= _CLEANUP_INTERVAL_SECONDS:
            self._cleaned_at = time.monotonic()
            await self._store.remove_before(self._clock() - _KEPT_FOR)

    def _on_change(self, row: SessionRow) -> None:
        # The pending session of a plan may have been placed or cancelled, so check the plans.
        if row.status in ENDED or row.status is Status.SCHEDULED:
            self._loop.wake()
