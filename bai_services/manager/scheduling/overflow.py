"""Move pending sessions to other resource groups by the rules of their projects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.scheduling.estimates.explainer import Choices, Explainer
from bai_services.core.scheduling.overflow import Candidate, Move, find_moves, targets
from bai_services.core.scheduling.queue.model import Changes
from bai_services.db.open_work import Work
from bai_services.db.scheduling.lease import StaleLease
from bai_services.db.scheduling.overflow import OverflowStore, WaitingSession
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.usage.prices import UsagePriceStore

from ..context import ManagerContext
from ..sessions.lifecycle import Lifecycle
from .lease import Lease
from .overflow_targets import costs_of
from .scheduler import Scheduler
from .start_explanations import start_choices

TICK_SECONDS = 5.0
# Maximum number of sessions that one step examines.
_MAX_SESSIONS = 200


class Overflow:
    """Moves pending sessions every ``TICK_SECONDS`` while this manager holds the lease."""

    def __init__(
        self,
        context: ManagerContext,
        store: OverflowStore,
        requests: RequestStore,
        prices: UsagePriceStore,
        scheduler: Scheduler,
        lifecycle: Lifecycle,
        lease: Lease,
    ) -> None:
        self._store = store
        self._requests = requests
        self._prices = prices
        self._scheduler = scheduler
        self._lifecycle = lifecycle
        self._lease = lease
        self._clock = context.clock
        self._audit = context.audit
        self._loop = lease.loop("overflow", self.step, TICK_SECONDS, Work.OVERFLOW)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Move the sessions that start at once in another resource group."""
        token = await self._lease.hold()
        if token is None or not await self._store.has_rules():
            return
        now = self._clock()
        waiting = {one.row.id: one for one in await self._store.waiting(now, _MAX_SESSIONS)}
        if not waiting:
            return
        candidates = await self._candidates(list(waiting.values()), now)
        if not candidates:
            return
        limits = await self._store.limits({group for one in candidates for group in one.groups})
        moves = await self._scheduler.query(partial(_moves, candidates, limits, self._clock()))
        for move in moves or ():
            try:
                await self._move(move, waiting[move.session_id], token)
            except StaleLease:
                self._lease.lost()
                return

    async def _candidates(
        self, waiting: Sequence[WaitingSession], now: datetime
    ) -> list[Candidate]:
        """Return the sessions with the resource groups to which they may move now."""
        rules = defaultdict(list)
        for rule in await self._store.in_force():
            rules[rule.project_id, rule.from_group].append(rule)
        prices = await self._prices.read()
        # Cache the choices: all sessions with the same owner, project, keypair, type and group have
        # the same.
        known: dict[tuple[str, ...], Choices] = {}
        candidates = []
        for one in waiting:
            row = one.row
            key = (row.owner_id, row.project_id, row.access_key, row.type, row.resource_group)
            if key not in known:
                known[key] = await start_choices(self._requests, row)
            chosen = rules[row.project_id, row.resource_group]
            found = targets(chosen, known[key].groups, costs_of(row, chosen, prices), one.since)
            due = [each.resource_group for each in found if (each.moves_at or now) <= now]
            if due:
                candidates.append(Candidate(row.id, due))
        return candidates

    async def _move(self, move: Move, waiting: WaitingSession, token: int) -> None:
        row, now = waiting.row, self._clock()
        reason = _reason(move, waiting, int((now - waiting.since).total_seconds()))
        entry = self._audit.system(
            "session.move",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            from_group=move.from_group,
            to_group=move.to_group,
        )
        moved = await self._store.move(move, reason, now, token, entry)
        if moved is not None:
            self._lifecycle.announce(moved, reason)


def _moves(
    candidates: Sequence[Candidate], limits: Changes, now: datetime, why: Explainer
) -> list[Move]:
    return find_moves(why.queue, candidates, limits, now)


def _reason(move: Move, waiting: WaitingSession, seconds: int) -> CodedText:
    return TextTemplate.MOVED_BY_RULE.text(
        source=move.from_group,
        group=move.to_group,
        waited_seconds=seconds,
        name=waiting.row.project,
    )
