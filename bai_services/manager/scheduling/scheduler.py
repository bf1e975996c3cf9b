"""The scheduling loop: place pending sessions, and record why the others wait."""

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
# Everything is read again after this time, whatever changes were reported.
FULL_SECONDS = 60.0
# Above this number of changes, reading everything is as fast as reading them one by one.
MANY = 2_000
LOST_SECONDS = 0.01
# Wait states are written this long after a change, together with later changes.
STATE_SECONDS = 0.5
# A question waits this long for a running pass, and this long for its answer.
PATIENCE_SECONDS = 0.25
ANSWER_SECONDS = 2.0
# Listeners are notified of this many sessions at once; then other tasks run.
TOLD_AT_ONCE = 50

T = TypeVar("T")

# Statuses that matter to a pass; those in between do not change what is allocated.
_RELEVANT_STATUSES = ENDED | {Status.PENDING, Status.RUNNING}


class Scheduler:
    """One pass at a time: read changes, decide in a thread, write; repeat if a write lost a race.

    The queue is kept between passes. It is notified of status changes by session id and of
    everything else by ``room_changed``. It is read again at intervals, after a lost race, and when
    the lease has been lost.
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
        # Only one thread may use the queue at a time.
        self._in_use = asyncio.Lock()
        # Estimates pause during a pass, so that they do not delay it.
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
        self._state_loop = Loop("wait states of pending sessions", self._say, TICK_SECONDS)
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
        """Read everything and run a pass: caps, agents or groups have changed."""
        self._read_at = 0.0
        self._loop.wake()

    async def drain(self) -> None:
        """Stop placing sessions; return when no pass is running."""
        self._is_drained = True
        async with self._in_use:
            pass

    async def look(self, question: Callable[[Explainer], T]) -> T | None:
        """Ask about pending sessions; None if this manager has no queue, or cannot answer in time.

        During a long pass, the answer is that of the pass before.
        """
        forking = asyncio.create_task(self._new_snapshot())
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

    async def _new_snapshot(self) -> QueueSnapshot | None:
        """Return a snapshot of the queue for questions; a pass only waits for the fork."""
        async with self._in_use:
            if self._queue is None:
                self._queue_snapshot = None
            elif self._queue_snapshot is None or not self._queue_snapshot.is_of(self._queue):
                self._queue_snapshot = await QueueSnapshot.of(
                    self._queue, self._asked, self._passing.or_loop()
                )
            return self._queue_snapshot

    async def run_pass(self) -> None:
        """Read everything, place every session that may start now, record why the others wait."""
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
            # Decisions that were not written exist in the queue only, so it is discarded.
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
            # The queue was older than the database: read the changes in the next pass.
            self.capacity_changed()
            await asyncio.sleep(min(LOST_SECONDS * self._lost_in_row, 1.0))

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        """Run part of a pass in a thread; threads that give way to it rest."""
        with self._passing:
            return await asyncio.to_thread(work, *given)

    async def _current(self) -> Queue:
        """Return the queue as it is in the database now."""
        created = await self._new_sessions()
        # Another manager creates sessions, and changes agents, without notifying this one.
        is_strange = bool(created) and not self._touched
        is_old = time.monotonic() - self._read_at > FULL_SECONDS
        # Changes from here on belong to the next pass.
        touched, self._touched = self._touched | created.keys(), set()
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
        return self._queue

    async def _new_sessions(self) -> dict[str, int]:
        """Return the sessions created since the last call, with their sequences."""
        if self._queue is None:
            # It is about to be read as a whole.
            self._last_sequence = await self._store.last_sequence()
            return {}
        created = await self._store.created_after(self._last_sequence)
        self._last_sequence = max(created.values(), default=self._last_sequence)
        return created

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
        snapshot = await self._new_snapshot()
        if token is None or snapshot is None:
            return
        self._is_said = True
        news = await self._states.news(snapshot)
        try:
            await self._states.write(news, token)
        except StaleLease:
            self.lease.lost()

    def _on_change(self, row: SessionRow) -> None:
        if row.status not in _RELEVANT_STATUSES:
            return
        self._touched.add(row.id)
        if row.status is Status.RUNNING:
            return  # this releases nothing now; the next pass reads it
        self._states.forget([row.id])
        self._loop.wake()


def _with_places(queue: Queue, session_ids: Iterable[str]) -> Touched:
    """Return the sessions with the agents and scopes of their allocations."""
    ids = frozenset(session_ids)
    held = [running for key in ids if (running := queue.running_session(key)) is not None]
    return Touched(
        sessions=ids,
        agents=frozenset(p.agent_id for running in held for p in running.placements),
        scopes=frozenset(scope for running in held for scope in running.scopes),
    )
