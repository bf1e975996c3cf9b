"""Partitions, kills and restarts: batch sessions never run twice at once, and finally run.

``Fence``, ``Folders``, ``HeartbeatTimes``, ``action_for`` and ``has_stopped`` are real. Machines,
the network and the other parts of the manager are simulated.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bai_services.agent.engine import Engine
from bai_services.agent.fence import Fence
from bai_services.agent.folders.kernel_folders import Folders, KernelFolder
from bai_services.agent.kernels import Kernel, Task
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.lost_agents import (
    MIN_REQUEUE_SECONDS,
    Action,
    KernelOnAgent,
    LostAgentOptions,
    action_for,
    has_stopped,
)
from bai_services.manager.cluster.heartbeat_times import HeartbeatTimes

SESSION, KERNEL = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
START = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE, INTERVAL, RETRY_SECONDS = 40, 10, 5
# Time until a killed agent is restarted.
RESTART_SECONDS = 3
# Maximum response time of the manager.
RESPONSE_SECONDS = 10
# Longer than the minimum, so that agents are lost before they stop kernels.
REQUEUE_SECONDS = MIN_REQUEUE_SECONDS + 25
UPGRADE_SECONDS = 2 * REQUEUE_SECONDS
OPTIONS = LostAgentOptions(requeue_after_seconds=REQUEUE_SECONDS)


class Machine:
    """A machine with its agent, and the attempt of the session that runs on it."""

    def __init__(self, name: str, folder: Path, world: World) -> None:
        self.name, self.world, self.home = name, world, folder
        self.is_linked = True
        self.boots = 0
        self.attempt: int | None = None
        self.folders = Folders(folder)
        self.down_until = 0
        # Heartbeats without a response yet: the time of sending and the time of the response.
        self.in_flight: list[tuple[float, int]] = []
        self.next_heartbeat = 0
        # The guard that an agent leaves if it cannot sign off.
        self.guard: Fence | None = None
        self.start_agent()

    def make_fence(self) -> Fence:
        engine = cast("Engine", self)
        fence = Fence(
            self.home, self.folders, engine, lambda: float(self.world.now), f"boot-{self.boots}"
        )
        fence.on_fenced(self.stop)
        return fence

    def start_agent(self) -> None:
        self.fence = self.make_fence()
        self.fence.restore()
        self.in_flight = []

    async def observe(self) -> list[Kernel]:
        return [] if self.attempt is None else [Kernel(KERNEL, SESSION, is_running=True)]

    async def stop(self, folder: KernelFolder) -> None:
        self.attempt = None
        self.folders.mark_fenced(folder.name)

    def run(self, attempt: int, fence_seconds: int | None) -> None:
        task = Task("p", "prepare", SESSION, KERNEL, attempt=attempt, fence_seconds=fence_seconds)
        self.folders.create(task, None, None)
        self.attempt = attempt

    def remove(self) -> None:
        self.attempt = None
        self.folders.remove(SESSION)

    async def sign_off(self) -> None:
        """Stop the agent for an upgrade of ``UPGRADE_SECONDS``, twice the requeue time."""
        self.down_until = self.world.now + UPGRADE_SECONDS
        if self.is_linked:
            self.world.signed_off.add(self.name)
            await self.fence.sign_off()
        if await self.fence.has_work():
            self.guard = self.make_fence()
            self.guard.begin_guard()

    def report(self) -> tuple[int | None, int | None]:
        """Return the running and the fenced attempt, as a heartbeat does."""
        fenced = [folder.attempt for folder in self.folders.all() if folder.is_fenced]
        return self.attempt, fenced[0] if fenced and self.attempt is None else None

    async def tick(self, delay: int) -> None:
        now = self.world.now
        if self.guard is not None and not await self.guard.keep_guard():
            self.guard = None
        if now < self.down_until:
            return
        if self.down_until:
            self.down_until = 0
            self.start_agent()
        await self.fence.check()
        for sent_at, answered_at in [one for one in self.in_flight if one[1] <= now]:
            self.in_flight.remove((sent_at, answered_at))
            if self.is_linked:
                await self.fence.renew(sent_at)
        if self.next_heartbeat <= now:
            await self.fence.check()
            self.next_heartbeat = now + (INTERVAL if self.is_linked else RETRY_SECONDS)
            if self.is_linked:
                sent_at = self.fence.now()
                await self.fence.begin(sent_at)
                self.in_flight.append((sent_at, now + delay))
                # The manager receives it immediately; only the response is delayed.
                self.world.receive(self)


@dataclass
class World:
    """The manager with one batch session."""

    folder: Path
    now: int = 0
    status: Status = Status.PENDING
    agent: str = ""
    attempt: int = 0
    fence_seconds: int | None = None
    machines: dict[str, Machine] = field(default_factory=dict)
    heartbeats: dict[str, datetime] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    signed_off: set[str] = field(default_factory=set)
    runs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times = HeartbeatTimes(lambda: float(self.now))
        for name in ("a1", "a2"):
            home = self.folder / name
            home.mkdir(parents=True)
            self.machines[name] = Machine(name, home, self)

    def receive(self, machine: Machine) -> None:
        at = START + timedelta(seconds=self.now)
        self.heartbeats[machine.name] = at
        self.times.receive(machine.name, at)
        self.lost.discard(machine.name)
        self.signed_off.discard(machine.name)
        running, fenced = machine.report()
        is_here = self.agent == machine.name
        if is_here and self.status is Status.RUNNING and fenced == self.attempt:
            self.requeue()
        if running is not None and not (is_here and running == self.attempt):
            machine.remove()
        elif is_here and self.status is Status.RUNNING and running is None:
            # The process died with its machine, and the agent did not notice.
            self.requeue()

    def requeue(self) -> None:
        self.status, self.agent, self.attempt = Status.PENDING, "", self.attempt + 1

    def step(self) -> None:
        """Let the manager detect lost agents, and act."""
        for name, at in self.heartbeats.items():
            if name not in self.signed_off and self.times.silent_seconds(name, at) > DEADLINE:
                self.lost.add(name)
        if self.status is Status.PENDING:
            for name, machine in self.machines.items():
                # An agent gets work only after its first heartbeat was acknowledged.
                is_registered = machine.fence.age_seconds < DEADLINE
                is_up = machine.is_linked and self.now >= machine.down_until
                can_start = is_up and is_registered
                is_offered = name not in self.lost | self.signed_off
                if name in self.heartbeats and is_offered and can_start:
                    self.status, self.agent = Status.RUNNING, name
                    self.fence_seconds = OPTIONS.fence_seconds("batch", DEADLINE)
                    machine.run(self.attempt, self.fence_seconds)
                    self.runs.append(self.attempt)
                    return
        elif self.agent in self.lost:
            silent = self.times.silent_seconds(self.agent, self.heartbeats[self.agent])
            stopped = has_stopped(AgentStatus.LOST, silent, self.fence_seconds)
            action = action_for(self.status, [KernelOnAgent(True, stopped)], OPTIONS.wait_seconds)
            if action is Action.REQUEUE:
                self.status = Status.TERMINATING
            elif action is Action.FINISH:
                self.requeue()
            else:
                assert action is Action.WAIT

    async def advance(self, seconds: int, delay: int) -> None:
        for _ in range(seconds):
            self.now += 1
            for machine in self.machines.values():
                await machine.tick(delay)
            self.step()
            running = [m.attempt for m in self.machines.values() if m.attempt is not None]
            assert len(running) <= 1, f"attempts {running} run at the same time at {self.now}"


CUT: list[tuple[Any, ...]] = [("wait", 20, 0), ("cut", "a1")]
MACHINES = st.sampled_from(["a1", "a2"])
OPERATIONS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 90), st.integers(0, RESPONSE_SECONDS)),
    st.tuples(st.just("cut"), MACHINES),
    st.tuples(st.just("heal"), MACHINES),
    st.tuples(st.just("kill agent"), MACHINES),
    st.tuples(st.just("upgrade"), MACHINES),
    st.tuples(st.just("reboot"), MACHINES),
    st.just(("restart manager",)),
)


async def run(operations: list[tuple[Any, ...]], folder: Path, *, heals: bool = True) -> World:
    world = World(folder)
    for name, *arguments in operations:
        if name == "wait":
            await world.advance(*arguments)
        elif name == "restart manager":
            world.times.forget()
        else:
            machine = world.machines[arguments[0]]
            if name in ("cut", "heal"):
                machine.is_linked = name == "heal"
            elif name == "upgrade":
                if world.now >= machine.down_until:
                    await machine.sign_off()
            else:
                machine.down_until = world.now + RESTART_SECONDS
            if name == "reboot":
                machine.attempt, machine.boots = None, machine.boots + 1
                machine.guard = None
    if heals:
        for machine in world.machines.values():
            machine.is_linked = True
        await world.advance(UPGRADE_SECONDS + 2 * REQUEUE_SECONDS, 0)
    return world


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
@example([*CUT, ("upgrade", "a1")])
@example([*CUT, ("upgrade", "a1"), ("wait", 90, 0), ("upgrade", "a1")])
def test_session_never_runs_twice_at_the_same_time_and_finally_runs(
    operations: list[tuple[Any, ...]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bai-fence-"))
    try:
        world = asyncio.run(run(operations, folder))
    finally:
        shutil.rmtree(folder)
    assert world.status is Status.RUNNING
    assert [m.attempt for m in world.machines.values() if m.attempt is not None] == [world.attempt]
    assert len(set(world.runs)) == len(world.runs), "an attempt was started twice"


def test_partitioned_session_runs_elsewhere_after_the_requeue_time(tmp_path: Path) -> None:
    operations = [*CUT, ("wait", REQUEUE_SECONDS - INTERVAL - 1, 0)]
    early = asyncio.run(run(operations, tmp_path / "w1", heals=False))
    operations = [*CUT, ("wait", REQUEUE_SECONDS + 3, 0)]
    late = asyncio.run(run(operations, tmp_path / "w2", heals=False))
    assert (early.runs, late.runs, late.agent) == ([0], [0, 1], "a2")


def test_session_continues_after_a_short_partition(tmp_path: Path) -> None:
    world = asyncio.run(run([*CUT, ("wait", 30, 0), ("heal", "a1")], tmp_path / "w"))
    assert (world.status, world.agent, world.runs) == (Status.RUNNING, "a1", [0])


def test_lease_expires_in_time_although_the_agent_restarts(tmp_path: Path) -> None:
    operations = [*CUT, ("wait", 40, 0), ("kill agent", "a1"), ("wait", 60, 0)]
    world = asyncio.run(run(operations, tmp_path / "w"))
    assert (world.agent, world.runs) == ("a2", [0, 1])


def test_restarted_manager_waits_the_full_requeue_time_again(tmp_path: Path) -> None:
    operations = [*CUT, ("wait", 40, 0), ("restart manager",), ("wait", REQUEUE_SECONDS - 5, 0)]
    world = asyncio.run(run(operations, tmp_path / "w0", heals=False))
    assert (world.status, world.runs) == (Status.RUNNING, [0])
    world = asyncio.run(run([*operations, ("heal", "a1"), ("wait", 1, 0)], tmp_path / "w"))
    # The agent was back before the requeue time ended, and reported the kernel that it had stopped.
    assert world.runs == [0, 1]
    world = asyncio.run(run([*operations, ("wait", 10, 0)], tmp_path / "w2"))
    assert (world.agent, world.runs) == ("a2", [0, 1])


def test_session_starts_again_after_a_restart_of_its_machine(tmp_path: Path) -> None:
    world = asyncio.run(run([("wait", 20, 0), ("reboot", "a1"), ("wait", 30, 0)], tmp_path / "w"))
    assert (world.status, world.runs) == (Status.RUNNING, [0, 1])


def test_session_continues_during_a_long_upgrade_of_its_agent(tmp_path: Path) -> None:
    upgrade = [("wait", 20, 0), ("upgrade", "a1"), ("wait", UPGRADE_SECONDS + 5, 0)]
    world = asyncio.run(run(upgrade, tmp_path / "w"))
    assert (world.status, world.agent, world.runs) == (Status.RUNNING, "a1", [0])


def test_session_runs_elsewhere_if_the_machine_is_cut_off_after_an_upgrade(tmp_path: Path) -> None:
    upgrade = [("wait", 20, 0), ("upgrade", "a1"), ("wait", UPGRADE_SECONDS + 1, 9)]
    operations = [*upgrade, ("cut", "a1"), ("wait", 2 * REQUEUE_SECONDS, 0)]
    world = asyncio.run(run(operations, tmp_path / "w", heals=False))
    assert (world.agent, world.runs) == ("a2", [0, 1])


def test_guard_stops_the_session_of_an_agent_that_was_stopped_while_cut_off(tmp_path: Path) -> None:
    operations = [*CUT, ("upgrade", "a1"), ("wait", REQUEUE_SECONDS + 3, 0)]
    world = asyncio.run(run(operations, tmp_path / "w", heals=False))
    assert (world.agent, world.runs) == ("a2", [0, 1])
    assert world.machines["a1"].guard is None, "the guard has not ended"


def test_guard_ends_when_the_next_process_of_the_agent_reaches_the_manager(tmp_path: Path) -> None:
    stopped = [("cut", "a1"), ("upgrade", "a1"), ("heal", "a1")]
    # The upgrade ends before the lease expires.
    operations = [("wait", 20, 0), *stopped, ("wait", 1, 0)]

    async def check() -> None:
        world = await run(operations, tmp_path / "w", heals=False)
        machine = world.machines["a1"]
        assert machine.guard is not None
        machine.down_until = world.now + 5
        await world.advance(10, 0)
        assert machine.guard is None
        assert (world.status, world.agent, world.runs) == (Status.RUNNING, "a1", [0])

    asyncio.run(check())
