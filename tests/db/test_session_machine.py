"""Stateful property test: sessions, quotas and devices are compared with a model without SQL."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bai_services.core.errors import AlreadyExists, InvalidTransition
from bai_services.core.sessions.lifecycle import ENDED, OCCUPYING, Event, Status, next_status
from bai_services.db.sessions.transitions import Move
from bai_services.db.tables import cluster
from bai_services.db.tables.sessions import allocations

from .usage_oracle import check_usage
from .world import GIB, World, make_world

T = TypeVar("T")

CPU, MEM = 8000, 16 * GIB
EVENTS = [event for event in Event if event is not Event.PLACED]
LIMITED = ("domain", "project", "user", "keypair")
# Seconds between two steps: times in the same second, and just before a whole second.
STEPS = st.sampled_from([0, 0.0001, 0.4, 0.9995, 0.9999, 1, 7])

amounts = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["0.5", "2", "5"]),
        "mem": st.sampled_from(["512m", "4g"]),
        "cuda.shares": st.sampled_from(["0", "0.25", "0.4", "0.7", "1", "1.3"]),
    }
)


@dataclass
class ModelSession:
    """A session in the model."""

    id: str
    user: int
    name: str
    slots: dict[str, int]
    status: Status = Status.PENDING


class SessionMachine(RuleBasedStateMachine):
    """Runs random creations, passes, events and failures; checks invariants after each step."""

    template: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.known: list[ModelSession] = []
        self.caps: dict[str, dict[str, int | None]] = {}
        self.healthy = {"a1-g0": True, "a1-g1": True}
        self.is_alive = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        target = self.folder / "bai.sqlite"
        if SessionMachine.template is None:
            made = Path(tempfile.mkdtemp()) / "bai.sqlite"
            self.run(self._make(made))
            SessionMachine.template = made
        shutil.copy(SessionMachine.template, target)
        self.world = World(f"sqlite+aiosqlite:///{target}")

    async def _make(self, path: Path) -> None:
        # Closing the last connection merges the write-ahead log, so that each run copies only one
        # file.
        await (await make_world(f"sqlite+aiosqlite:///{path}")).close()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.run(check_usage(self.world))
            finally:
                self.run(self.world.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule(user=st.sampled_from([1, 2]), name=st.sampled_from("abcde"), slots=amounts, step=STEPS)
    def create(self, user: int, name: str, slots: dict[str, str], step: float) -> None:
        new = self.world.new_session(
            name, slots, user=user, request_hash=repr(sorted(slots.items()))
        )
        twin = next(
            (k for k in self.known if (k.user, k.name) == (user, name) and k.status not in ENDED),
            None,
        )
        wanted = dict(new.requested_slots)
        try:
            row, is_new = self.run(self.world.sessions.enqueue(new, self.world.advance(step)))
        except AlreadyExists:
            assert twin is not None and twin.slots != wanted
            return
        assert is_new is (twin is None)
        if twin is None:
            self.known.append(ModelSession(row.id, user, name, wanted))
        else:
            assert (row.id, twin.slots) == (twin.id, wanted)

    @rule(step=STEPS)
    def schedule(self, step: float) -> None:
        self.world.advance(step)
        placed = set(self.run(self.world.run_pass()))
        for known in self._pending():
            if known.id in placed:
                assert self._is_within_caps(known.user, known.slots), known
                known.status = Status.SCHEDULED
                placed.discard(known.id)
        assert not placed
        self._check_first_pending_does_not_fit()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def move_all(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.known), min_size=1, unique_by=id))
        events = [data.draw(st.sampled_from(EVENTS)) for _ in chosen]
        expected: dict[str, tuple[Status, bool]] = {}
        for known, event in zip(chosen, events, strict=True):
            with contextlib.suppress(InvalidTransition):
                after = next_status(known.status, event)
                is_freed = known.status in OCCUPYING and after not in OCCUPYING
                expected[known.id] = (after, is_freed)
        moves = [Move(known.id, event) for known, event in zip(chosen, events, strict=True)]
        at = self.world.advance(data.draw(STEPS))
        moved = self.run(self.world.sessions.move_all(moves, at))
        assert {one.row.id: (one.row.status, one.is_freed) for one in moved} == expected
        stored = {row.id: row for row in self.run(self.world.sessions.rows(sorted(expected)))}
        assert {one.row.id: one.row for one in moved} == stored
        for known in chosen:
            known.status = expected.get(known.id, (known.status,))[0]

    @rule(
        scope=st.sampled_from(LIMITED),
        shares=st.sampled_from([None, 0, 400, 1000]),
        count=st.sampled_from([None, 1, 3]),
    )
    def set_caps(self, scope: str, shares: int | None, count: int | None) -> None:
        slots = {} if shares is None else {"cuda.shares": str(shares / 1000)}
        self.run(self.world.set_caps(scope, slots, max_concurrent_sessions=count))
        self.caps[scope] = {"cuda.shares": shares, "sessions": count}

    @rule(device=st.sampled_from(["a1-g0", "a1-g1"]))
    def toggle_device_health(self, device: str) -> None:
        self.healthy[device] = not self.healthy[device]
        where = cluster.devices.c.id == device
        self.run(
            self.world.write(
                sa.update(cluster.devices).where(where).values(is_healthy=self.healthy[device])
            )
        )

    @rule()
    def toggle_agent_alive(self) -> None:
        self.is_alive = not self.is_alive
        status = "ALIVE" if self.is_alive else "LOST"
        self.run(self.world.write(sa.update(cluster.agents).values(status=status)))

    @invariant()
    def allocations_match_counters(self) -> None:
        if hasattr(self, "world"):
            assert self.run(self.world.allocations.audit()) == []

    @invariant()
    def devices_are_not_overcommitted(self) -> None:
        if hasattr(self, "world"):
            assert all(used <= 1000 for used in self._on_devices().values())

    @invariant()
    def statuses_match_model(self) -> None:
        if not hasattr(self, "world"):
            return
        rows = {row.id: row for row in self.run(self.world.sessions.in_status(*Status))}
        assert {k.id: k.status for k in self.known} == {key: r.status for key, r in rows.items()}

    def _pending(self) -> list[ModelSession]:
        return [k for k in self.known if k.status is Status.PENDING]

    def _holding(self) -> list[ModelSession]:
        return [k for k in self.known if k.status in OCCUPYING]

    def _is_within_caps(self, user: int, slots: dict[str, int]) -> bool:
        """Return whether the user's usage plus ``slots`` is within the caps of all scopes."""
        for scope, limits in self.caps.items():
            is_shared = scope in ("domain", "project")
            mine = [k for k in self._holding() if is_shared or k.user == user]
            shares, count = limits["cuda.shares"], limits["sessions"]
            asked = slots.get("cuda.shares", 0)
            used = sum(k.slots.get("cuda.shares", 0) for k in mine)
            if shares is not None and asked and used + asked > shares:
                return False
            if count is not None and len(mine) + 1 > count:
                return False
        return True

    def _on_devices(self) -> Counter[str]:
        async def read() -> Counter[str]:
            used: Counter[str] = Counter()
            async with self.world.database.read() as tx:
                rows = await tx.execute(
                    sa.select(allocations.c.device_id, allocations.c.amount).where(
                        allocations.c.freed_at.is_(None), allocations.c.device_id.is_not(None)
                    )
                )
                for device, amount in rows:
                    used[device] += amount
            return used

        return self.run(read())

    def _fits(self, slots: dict[str, int]) -> bool:
        used = Counter[str]()
        for known in self._holding():
            used.update(known.slots)
        if used["cpu"] + slots["cpu"] > CPU or used["mem"] + slots["mem"] > MEM:
            return False
        on_devices = self._on_devices()
        free = sorted(1000 - on_devices[d] for d, is_healthy in self.healthy.items() if is_healthy)
        shares = slots.get("cuda.shares", 0)
        if shares <= 1000:
            return not shares or any(room >= shares for room in free)
        # A share of 1.3 is divided into 0.65 on each of two devices.
        return len(free) == 2 and min(free) >= shares // 2

    def _check_first_pending_does_not_fit(self) -> None:
        """Check, after a pass, that the first pending session within its caps does not fit.

        A session that needs more devices than are healthy does not block later sessions, so the
        check continues with the next session.
        """
        if not self.is_alive:
            return
        healthy = sum(self.healthy.values())
        for known in self._pending():
            if not self._is_within_caps(known.user, known.slots):
                continue
            assert not self._fits(known.slots), known
            if -(-known.slots.get("cuda.shares", 0) // 1000) <= healthy:
                return


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
