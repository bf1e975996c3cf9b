"""The scheduling loop: place pending sessions, and store why the remaining ones stay pending."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import PassResult, Queue
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.db.scheduling.lease import StaleLease
from bai_services.db.scheduling.queue import QueueStore, Touched
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..loop import Loop
from ..metrics import Metrics
from ..preemption.preemptions import Preemptions
from ..sessions import session_spans
from ..sessions.lifecycle import Lifecycle
from .fair_usage import FairUsage
from .idle_scheduling import WorkGate, loop_pauser, wait_until_idle
from .jit_warmup import JitWarmup
from .lease import Lease
from .placement_training import PlacementTraining
from .queue_snapshot import QueueSnapshot
from .wait_states import WaitStates

TICK_SECONDS = 1.0
# Interval of full reads, which also find changes without a notification to this manager.
FULL_READ_INTERVAL_SECONDS = 60.0
# Maximum number of changes for an incremental read; with more, a full read is as fast.
MAX_INCREMENTAL_CHANGES = 2_000
CONFLICT_BACKOFF_SECONDS = 0.01
# Debounce of writing wait states after a change.
STATE_DEBOUNCE_SECONDS = 0.5
# Maximum wait of a query for a new snapshot, which can be taken only when no pass is running.
SNAPSHOT_TIMEOUT_SECONDS = 0.25
# Maximum run time of a query.
QUERY_TIMEOUT_SECONDS = 2.0
# Maximum wait in ``wait_for_changes``.
CHANGES_TIMEOUT_SECONDS = 1.0
# Listeners are notified in batches of this size; other tasks can run between two batches.
NOTIFY_BATCH_SIZE = 50

T = TypeVar("T")

# Only changes to these statuses affect a pass; other status changes do not change allocations.
_RELEVANT_STATUSES = ENDED | {Status.PENDING, Status.RUNNING, Status.TERMINATING}


class Scheduler:
    """Runs scheduling passes: read changes, decide in a thread, write the decisions.

    The queue stays in memory between passes. Status changes mark single sessions for the next read;
    ``capacity_changed`` requests a full read. A full read also happens at intervals, if many
    sessions have changed, after a write conflict, a failed pass or a loss of the lease, and after
    another manager created sessions.
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
        preemptions: Preemptions,
        metrics: Metrics,
    ) -> None:
        self._preemptions = preemptions
        self._store = store
        self._sessions = sessions
        self.lease = lease
        self._usage = usage
        self._lifecycle = lifecycle
        self._clock = clock
        self._metrics = metrics
        self._queue: Queue | None = None
        self._queue_snapshot: QueueSnapshot | None = None
        self._query_tasks: set[asyncio.Task[object]] = set()
        # Only one thread may use the queue at a time.
        self._in_use = asyncio.Lock()
        # Queries pause during a pass, so that they do not delay it.
        self._pass_gate = WorkGate()
        self._is_drained = False
        self._touched: set[str] = set()
        # Number of relevant session changes since this manager was created. The other two are the
        # values of this number when the latest pass, and the latest completed pass, read the
        # changes. A pass that raised ``StaleLease`` counts as completed.
        self._change_count = self._read_count = self._applied_count = 0
        # Set at the end of the current pass, and then replaced.
        self._pass_ended = asyncio.Event()
        self._last_sequence = 0
        self._read_at = 0.0
        self._conflict_count = 0
        self._states_are_written = True
        self.placement_training = PlacementTraining(store, lease)
        self._jit_warmup = jit_warmup
        self.states = states
        self._loop = Loop("scheduler", self.step, TICK_SECONDS)
        self._state_loop = Loop(
            "wait states of pending sessions", self.write_due_states, TICK_SECONDS
        )
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._jit_warmup.start(self.placement_training.start)
        self.lease.start()
        self._usage.start()
        self._loop.start()
        self._state_loop.start()

    async def stop(self) -> None:
        await self._jit_warmup.stop()
        await self.placement_training.stop()
        await self._state_loop.stop()
        await self._loop.stop()
        await asyncio.gather(*self._query_tasks, return_exceptions=True)
        await self._usage.stop()
        await self.lease.stop()

    def wake(self) -> None:
        """Run a pass now."""
        self._loop.wake()

    def capacity_changed(self) -> None:
        """Run a pass with a full read, after a change of limits, agents or resource groups."""
        self._read_at = 0.0
        self._loop.wake()

    async def drain(self) -> None:
        """Stop placing sessions; wait for a running pass."""
        self._is_drained = True
        async with self._in_use:
            pass

    async def query(self, query: Callable[[Explainer], T]) -> T | None:
        """Run ``query`` on a snapshot of the queue and return its result.

        During a long pass, the previous snapshot is used. Return None if there is no queue (for
        example on standby), or if the query takes longer than ``QUERY_TIMEOUT_SECONDS``.
        """
        forking = asyncio.create_task(self._new_snapshot())
        self._query_tasks.add(forking)
        forking.add_done_callback(self._query_tasks.discard)
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_SECONDS):
                # Shield the task from the timeout: if it were cancelled, it would release the lock
                # while its thread still copies the queue.
                snapshot = await asyncio.shield(forking)
        except TimeoutError:
            snapshot = self._queue_snapshot
        if snapshot is None:
            return None
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_SECONDS):
                return await snapshot.query(query)
        except TimeoutError:
            return None

    async def wait_for_changes(self) -> None:
        """Wait until a pass has applied all changes of sessions so far, for at most 1 s."""
        awaited = self._change_count
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHANGES_TIMEOUT_SECONDS):
                while self._applied_count < awaited:
                    await self._pass_ended.wait()

    async def _new_snapshot(self) -> QueueSnapshot | None:
        """Return a current snapshot for queries; blocks passes only while the queue is copied."""
        async with self._in_use:
            if self._queue is None:
                self._queue_snapshot = None
            elif self._queue_snapshot is None or not self._queue_snapshot.is_of(self._queue):
                self._queue_snapshot = await QueueSnapshot.of(
                    self._queue, self._query_tasks, self._pass_gate.or_loop()
                )
            return self._queue_snapshot

    async def run_pass(self) -> None:
        """Run a pass with a full read, and write the wait states."""
        self._read_at = 0.0
        await self.step()
        await self._write_states()

    async def step(self) -> None:
        """Run a pass if this manager holds the lease."""
        await self._jit_warmup.wait()
        token = await self.lease.hold()
        if token is None:
            self._queue = None
            self.states.clear()
            return
        try:
            async with self._in_use:
                if not self._is_drained:
                    with self._metrics.pass_seconds.time():
                        await self._pass(token)
        except StaleLease:
            self._queue = None
            self.lease.lost()
        except BaseException:
            # The queue may contain decisions that were not written, so discard it.
            self._queue = None
            raise
        self._applied_count = self._read_count
        self._pass_ended.set()
        self._pass_ended = asyncio.Event()
        self._state_loop.wake()

    async def _pass(self, token: int) -> None:
        began_at = self._clock()
        queue = await self._refreshed_queue()
        result = await self._in_thread(queue.run, self._clock())
        self.states.update_reasons(result.changed)
        self._states_are_written &= not (result.changed or result.decisions)
        lost = 0
        size = self._store.batch
        for start in range(0, len(result.decisions), size):
            await wait_until_idle()
            part = result.decisions[start : start + size]
            committed = await self._store.commit(part, self._clock(), token)
            lost += len(committed.lost)
            self._metrics.placed.inc(len(committed.placed))
            self._metrics.conflicts.inc(len(committed.lost))
            await self._notify_placed(committed.placed, began_at)
        lost += await self._write_plans(queue, result, token)
        self._conflict_count = self._conflict_count + 1 if lost else 0
        if lost:
            # The queue was outdated: read everything in the next pass.
            self.capacity_changed()
            await asyncio.sleep(min(CONFLICT_BACKOFF_SECONDS * self._conflict_count, 1.0))

    async def _write_plans(self, queue: Queue, result: PassResult, token: int) -> int:
        """Write new and dropped preemption plans; return the number of outdated ones."""
        for session_id in result.dropped_plans:
            await self._preemptions.drop(session_id)
        lost = 0
        for preemption in result.preemptions:
            options = queue.group_queue(preemption.group).state.preemption
            lost += not await self._preemptions.announce(preemption, options, token)
        if result.preemptions or result.dropped_plans:
            self._loop.wake()  # the next pass may make more plans
        return lost

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run part of a pass in a thread; queries pause meanwhile (``pause_if_busy``)."""
        with self._pass_gate:
            return await asyncio.to_thread(work, *args)

    async def _refreshed_queue(self) -> Queue:
        """Apply the changes in the database to the queue; return it."""
        created = await self._new_sessions()
        # This manager adds the sessions that it creates to ``_touched``. If there are new sessions
        # while ``_touched`` is empty, another manager has created them, and may also have changed
        # agents.
        is_changed_elsewhere = bool(created) and not self._touched
        is_old = time.monotonic() - self._read_at > FULL_READ_INTERVAL_SECONDS
        # Changes from now on belong to the next pass.
        touched, self._touched = self._touched | created.keys(), set()
        self._read_count = self._change_count
        if (
            self._queue is None
            or is_changed_elsewhere
            or is_old
            or len(touched) > MAX_INCREMENTAL_CHANGES
        ):
            self._read_at = time.monotonic()
            snapshot = await self._store.snapshot(self._clock())
            history = await self._usage.history(snapshot.groups)
            groups = self.placement_training.with_tables(snapshot.groups)
            snapshot = replace(snapshot, history=history, groups=groups)
            self._queue = await self._in_thread(Queue, snapshot, loop_pauser())
            self._states_are_written = False
        elif touched:
            changes = await self._store.changes(_with_agents_and_scopes(self._queue, touched))
            await self._in_thread(self._queue.apply, changes)
            self._states_are_written = False
        return self._queue

    async def _new_sessions(self) -> dict[str, int]:
        """Return the sessions created since the last call, with their sequence numbers."""
        if self._queue is None:
            # A full read follows.
            self._last_sequence = await self._store.last_sequence()
            return {}
        created = await self._store.created_after(self._last_sequence)
        self._last_sequence = max(created.values(), default=self._last_sequence)
        return created

    async def _notify_placed(self, session_ids: tuple[str, ...], began_at: datetime) -> None:
        self.states.discard(session_ids)
        for start in range(0, len(session_ids), NOTIFY_BATCH_SIZE):
            await wait_until_idle()
            for row in await self._sessions.rows(session_ids[start : start + NOTIFY_BATCH_SIZE]):
                session_spans.record_placement(row, began_at, len(session_ids))
                self._lifecycle.notify(row)

    async def write_due_states(self) -> None:
        """Write changed wait states, and publish changed positions, if they are due."""
        if not self._states_are_written:
            await asyncio.sleep(STATE_DEBOUNCE_SECONDS)
            await self._write_states()
        elif self.states.is_due():
            await self._write_states()
        self.states.publish_positions()

    async def _write_states(self) -> None:
        token = await self.lease.hold()
        snapshot = await self._new_snapshot()
        if token is None or snapshot is None:
            return
        self._states_are_written = True
        changed = await self.states.changed(snapshot)
        try:
            await self.states.write(changed, token)
        except StaleLease:
            self.lease.lost()

    def read_again(self, session_ids: Iterable[str]) -> None:
        """Let the next pass read sessions again, because their enforced ends have changed."""
        self._touched.update(session_ids)
        self._change_count += 1

    def _on_change(self, row: SessionRow) -> None:
        if row.status not in _RELEVANT_STATUSES:
            return
        self._touched.add(row.id)
        self._change_count += 1
        if row.status in (Status.RUNNING, Status.TERMINATING):
            return  # the change frees no capacity; the next pass reads it
        self.states.discard([row.id])
        self._loop.wake()


def _with_agents_and_scopes(queue: Queue, session_ids: Iterable[str]) -> Touched:
    """Return the sessions with the agents and scopes of their allocations."""
    ids = frozenset(session_ids)
    allocated = [running for key in ids if (running := queue.running_session(key)) is not None]
    return Touched(
        sessions=ids,
        agents=frozenset(p.agent_id for running in allocated for p in running.placements),
        scopes=frozenset(scope for running in allocated for scope in running.scopes),
    )
