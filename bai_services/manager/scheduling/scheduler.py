"""The loop that gives waiting sessions their place, and says why the others wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from bai_services.core.scheduling.queue import Queue
from bai_services.core.scheduling.queue.why import Explainer
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.db.scheduling.lease import StaleLease
from bai_services.db.scheduling.queue import QueueStore, Touched
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..loop import Loop
from ..sessions.lifecycle import Lifecycle
from .fair_usage import FairUsage
from .idle_scheduling import WorkGate, give_way, spare_time
from .jit_warmup import JitWarmup
from .lease import Lease
from .placement_training import PlacementTraining
from .queue_snapshot import QueueSnapshot
from .wait_states import WaitStates

TICK_SECONDS = 1.0
# Everything is read afresh this often, whatever was told.
FULL_SECONDS = 60.0
# So many changes are read no faster one by one than all together.
MANY = 2_000
LOST_SECONDS = 0.01
# What waiting sessions say is written this long after it has changed, with all that came meanwhile.
STATE_SECONDS = 0.5
# A question waits so long for a pass that is under way, and so long for its answer.
PATIENCE_SECONDS = 0.25
ANSWER_SECONDS = 2.0
# Sessions of which everybody is told before others get their turn.
TOLD_AT_ONCE = 50

T = TypeVar("T")

# Statuses that a pass looks at; the steps between do not change what is taken.
_SEEN = ENDED | {Status.PENDING, Status.RUNNING}


class Scheduler:
    """One pass at a time: read what has changed, decide in a thread, write; again where one lost.

    The queue is kept from pass to pass. It is told of every step of a session
    by its id, of anything else by ``room_changed``, and it is read afresh at
    intervals, after a lost race, and when the lease has been away.
    """

    def __init__(
        self,
        store: QueueStore,
        sessions: SessionStore,
        lease: Lease,
        usage: FairUsage,
        lifecycle: Lifecycle,
        states: WaitStates,
        clock: Clock,
        *,
        jit_warmup: JitWarmup,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self.lease = lease
        self._usage = usage
        self._lifecycle = lifecycle
        self._clock = clock
        self._queue: Queue | None = None
        self._queue_snapshot: QueueSnapshot | None = None
        self._asked: set[asyncio.Task[object]] = set()
        # The queue is for one thread at a time.
        self._in_use = asyncio.Lock()
        # Estimates give way to it, so that they delay no pass.
        self._passing = WorkGate()
        self._is_drained = False
        self._touched: set[str] = set()
        self._last_sequence = 0
        self._read_at = 0.0
        self._lost_in_row = 0
        self._is_said = True
        self._placement_training = PlacementTraining(store, lease)
        self._jit_warmup = jit_warmup
        self._states = states
        self._loop = Loop("scheduler", self._step, TICK_SECONDS)
        self._state_loop = Loop("states of waiting sessions", self._say, TICK_SECONDS)
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._jit_warmup.start(self._placement_training.start)
        self.lease.start()
        self._usage.start()
        self._loop.start()
        self._state_loop.start()

    async def stop(self) -> None:
        await self._jit_warmup.stop()
        await self._placement_training.stop()
        await self._state_loop.stop()
        await self._loop.stop()
        await asyncio.gather(*self._asked, return_exceptions=True)
        await self._usage.stop()
        await self.lease.stop()

    def wake(self) -> None:
        """Run a pass now."""
        self._loop.wake()

    def capacity_changed(self) -> None:
        """Read everything afresh and run a pass: caps, agents or groups are not as they were."""
        self._read_at = 0.0
        self._loop.wake()

    async def drain(self) -> None:
        """Place no session from now on; return when no pass is under way."""
        self._is_drained = True
        async with self._in_use:
            pass

    async def look(self, question: Callable[[Explainer], T]) -> T | None:
        """Ask about who waits; None where this manager keeps no queue, or cannot tell soon.

        While a long pass is under way the answer is that of the pass before.
        """
        forking = asyncio.create_task(self._look_ahead())
        self._asked.add(forking)
        forking.add_done_callback(self._asked.discard)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                # Never cancelled: a pass must not begin in the middle of a fork.
                snapshot = await asyncio.shield(forking)
        except TimeoutError:
            snapshot = self._queue_snapshot
        if snapshot is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await snapshot.ask(question)
        except TimeoutError:
            return None

    async def _look_ahead(self) -> QueueSnapshot | None:
        """Return the queue as it is now, for questions; a pass waits for no more than the fork."""
        async with self._in_use:
            if self._queue is None:
                self._queue_snapshot = None
            elif self._queue_snapshot is None or not self._queue_snapshot.is_of(self._queue):
                self._queue_snapshot = await QueueSnapshot.of(
                    self._queue, self._asked, self._passing.or_loop()
                )
            return self._queue_snapshot

    async def run_pass(self) -> None:
        """Read everything, place every session that may start now, write why the others wait."""
        self._read_at = 0.0
        await self._step()
        await self._write_states()

    async def _step(self) -> None:
        await self._jit_warmup.is_over()
        token = await self.lease.hold()
        if token is None:
            self._queue = None
            self._states.leave()
            return
        try:
            async with self._in_use:
                if not self._is_drained:
                    await self._pass(token)
        except StaleLease:
            self._queue = None
            self.lease.lost()
        except BaseException:
            # What was decided and not written is known to the queue alone.
            self._queue = None
            raise
        self._state_loop.wake()

    async def _pass(self, token: int) -> None:
        queue = await self._current()
        result = await self._in_thread(queue.run, self._clock())
        self._states.receive(result.changed)
        self._is_said &= not (result.changed or result.decisions)
        lost = 0
        size = self._store.batch
        for start in range(0, len(result.decisions), size):
            await spare_time()
            part = result.decisions[start : start + size]
            committed = await self._store.commit(part, self._clock(), token)
            lost += len(committed.lost)
            await self._tell_placed(committed.placed)
        self._lost_in_row = self._lost_in_row + 1 if lost else 0
        if lost:
            # The queue was older than the database: the next pass sees what has changed.
            self.capacity_changed()
            await asyncio.sleep(min(LOST_SECONDS * self._lost_in_row, 1.0))

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        """Do what belongs to a pass in a thread; other threads that give way to it rest."""
        with self._passing:
            return await asyncio.to_thread(work, *given)

    async def _current(self) -> Queue:
        """Return the queue as the database has it now."""
        newest = await self._store.last_sequence()
        # One that was filed elsewhere was not told to us.
        is_strange = newest > self._last_sequence and not self._touched
        is_old = time.monotonic() - self._read_at > FULL_SECONDS
        # Whatever changes from here on is for the next pass.
        touched, self._touched = self._touched, set()
        if self._queue is None or is_strange or is_old or len(touched) > MANY:
            self._read_at = time.monotonic()
            snapshot = await self._store.snapshot(self._clock())
            history = await self._usage.history(snapshot.groups)
            groups = self._placement_training.taught(snapshot.groups)
            snapshot = replace(snapshot, history=history, groups=groups)
            self._queue = await self._in_thread(Queue, snapshot, give_way())
            self._is_said = False
        elif touched:
            changes = await self._store.changes(_with_places(self._queue, touched))
            await self._in_thread(self._queue.apply, changes)
            self._is_said = False
        self._last_sequence = newest
        return self._queue

    async def _tell_placed(self, session_ids: tuple[str, ...]) -> None:
        self._states.forget(session_ids)
        for start in range(0, len(session_ids), TOLD_AT_ONCE):
            await spare_time()
            for row in await self._sessions.rows(session_ids[start : start + TOLD_AT_ONCE]):
                self._lifecycle.tell(row)

    async def _say(self) -> None:
        if not self._is_said:
            await asyncio.sleep(STATE_SECONDS)
            await self._write_states()
        elif self._states.is_late():
            await self._write_states()
        self._states.tell_moved()

    async def _write_states(self) -> None:
        token = await self.lease.hold()
        snapshot = await self._look_ahead()
        if token is None or snapshot is None:
            return
        self._is_said = True
        news = await self._states.news(snapshot)
        try:
            await self._states.write(news, token)
        except StaleLease:
            self.lease.lost()

    def _on_change(self, row: SessionRow) -> None:
        if row.status not in _SEEN:
            return
        self._touched.add(row.id)
        if row.status is Status.RUNNING:
            return  # nothing is free by that: the next pass takes it in
        self._states.forget([row.id])
        self._loop.wake()


def _with_places(queue: Queue, session_ids: Iterable[str]) -> Touched:
    """Return the sessions with the agents and scopes that they held a place in."""
    ids = frozenset(session_ids)
    held = [running for key in ids if (running := queue.running_session(key)) is not None]
    return Touched(
        sessions=ids,
        agents=frozenset(p.agent_id for running in held for p in running.placements),
        scopes=frozenset(scope for running in held for scope in running.scopes),
    )
