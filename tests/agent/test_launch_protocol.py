"""Launch orders are repeated, late, lost and interrupted by kills; each attempt starts once.

The agent's part is the real one, with folders on disk. The engine is replaced by a machine in
memory, which survives the kills of the agent.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Task
from bai_services.agent.launches import Launches
from bai_services.core.errors import Conflict
from bai_services.core.sessions.agent_launch import Marker, Phase, may_prepare
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines.base import Engine, Exit, Running

SESSION, KERNEL = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
PLAN = LaunchPlan.from_json(
    {
        "session_id": SESSION,
        "kernel_id": KERNEL,
        "agent_id": "a1",
        "name": "job1",
        "user": "ann",
        "engine": "process",
        "uid": 1000,
        "gid": 1000,
    }
)


class Killed(BaseException):
    """Ends the simulated process of the agent."""


@dataclass
class Machine:
    """The state that survives a kill of the agent: running kernels, and starts by attempt."""

    is_running: bool = False
    has_started: bool = False
    starts: Counter[int] = field(default_factory=Counter)
    # Number of steps after which the agent is killed; 0: it is not killed.
    kill_after: int = 0

    def step(self) -> None:
        if self.kill_after:
            self.kill_after -= 1
            if not self.kill_after:
                raise Killed


class MachineEngine(Engine):
    name = "process"
    is_local = True
    machine: Machine
    attempt: int

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        raise NotImplementedError

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        self.machine.step()
        self.machine.is_running = self.machine.has_started = True
        self.machine.starts[self.attempt] += 1
        self.machine.step()
        return replace(Running.named(plan), container_id="c1")

    async def find(self, kernel: Running) -> Running | None:
        return replace(kernel, container_id="c1") if self.machine.has_started else None

    async def poll(self, running: Running) -> Exit | None:
        return None if self.machine.is_running else Exit(0)

    async def read_log(self, running: Running, max_bytes: int) -> str:
        return ""

    async def stop(self, running: Running, now: bool = False) -> Exit:
        self.machine.step()
        self.machine.is_running = False
        return Exit(143)

    async def remove(self, running: Running) -> None:
        pass


class KilledFolders(Folders):
    """Folders whose markers are written before or after the agent is killed."""

    machine: Machine

    def set_marker(self, name: str, marker: Marker) -> None:
        self.machine.step()
        super().set_marker(name, marker)
        self.machine.step()


@dataclass
class World:
    """One session, its manager and its agent."""

    folders: KilledFolders
    machine: Machine
    status: str = "PREPARED"
    attempt: int = 0
    in_flight: list[Task] = field(default_factory=list)

    def send(self) -> None:
        """Send the order that follows from the status, as the manager does."""
        kind = {"PREPARED": "launch", "TERMINATING": "terminate"}.get(self.status)
        if kind is not None:
            plan = PLAN if kind == "launch" else None
            task = Task(kind, kind, SESSION, KERNEL, attempt=self.attempt, plan=plan)
            self.in_flight.append(task)

    def prepare(self, attempt: int) -> None:
        """Prepare the kernel, as ``WorkExecutor`` does."""
        task = Task("prepare", "prepare", SESSION, KERNEL, user="ann", attempt=attempt)
        if may_prepare(self.folders.marker(task.folder), attempt):
            self.machine.is_running = self.machine.has_started = False
            self.folders.create(task, None, None)
            self.folders.begin_attempt(task.folder, attempt)

    async def deliver(self, task: Task, is_reported: bool) -> None:
        """Let a new process of the agent execute an order."""
        engine = MachineEngine()
        engine.machine, engine.attempt = self.machine, task.attempt
        launches = Launches(
            cast("Any", None), engine, self.folders, is_offered=True, manager_url="http://m"
        )
        try:
            if task.kind == "launch":
                await launches.launch(task)
            else:
                await launches.terminate(task)
        except Killed:
            return
        except Conflict:
            # The manager ends a session whose current order fails.
            if is_reported and task.attempt == self.attempt and self.status == "PREPARED":
                self.status = "ENDED"
            return
        finally:
            self.machine.kill_after = 0
        if not is_reported or task.attempt != self.attempt:
            return
        if task.kind == "launch" and self.status == "PREPARED":
            self.status = "RUNNING"
        elif task.kind == "terminate" and self.status == "TERMINATING":
            self.status = "ENDED"
            assert not self.machine.is_running

    def stop(self) -> None:
        if self.status in ("PREPARED", "RUNNING"):
            self.status = "TERMINATING"

    def start_again(self) -> None:
        """Start the next attempt of a session that was preempted."""
        if self.status == "ENDED":
            self.attempt += 1
            self.prepare(self.attempt)
            self.status = "PREPARED"

    async def settle(self) -> None:
        """Deliver everything without faults, including all late orders."""
        for task in list(self.in_flight):
            await self.deliver(task, is_reported=False)
        self.send()
        for task in self.in_flight[-1:]:
            await self.deliver(task, is_reported=True)


OPERATIONS = st.one_of(
    st.just(("send",)),
    # The index of the order, the step of the kill (0: none), whether the report arrives.
    st.tuples(st.just("deliver"), st.integers(0, 9), st.integers(0, 6), st.booleans()),
    st.just(("stop",)),
    st.just(("start again",)),
    # The manager repeats the order to prepare the attempt.
    st.tuples(st.just("prepare"), st.integers(0, 2)),
)


async def run(operations: Sequence[tuple[Any, ...]], home: Path) -> World:
    machine, folders = Machine(), KilledFolders(home)
    folders.machine = machine
    world = World(folders, machine)
    world.prepare(0)
    for name, *arguments in operations:
        if name == "send":
            world.send()
        elif name == "deliver" and world.in_flight:
            index, machine.kill_after, is_reported = arguments
            await world.deliver(world.in_flight[index % len(world.in_flight)], is_reported)
        elif name == "stop":
            world.stop()
        elif name == "start again":
            world.start_again()
        elif name == "prepare" and arguments[0] <= world.attempt:
            world.prepare(arguments[0])
        check(world)
    await world.settle()
    check(world)
    return world


def check(world: World) -> None:
    assert all(count <= 1 for count in world.machine.starts.values()), world.machine.starts
    if world.status == "RUNNING":
        assert world.machine.is_running, "the kernel of a running session is lost"
    if world.status == "ENDED":
        assert not world.machine.is_running, "the kernel of an ended session runs"


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=14))
def test_each_attempt_starts_at_most_once_and_nothing_is_lost(
    operations: list[tuple[Any, ...]],
) -> None:
    home = Path(tempfile.mkdtemp(prefix="bai-launch-"))
    try:
        world = asyncio.run(run(operations, home))
    finally:
        shutil.rmtree(home)
    assert world.status in ("RUNNING", "ENDED"), world.status


def test_a_start_that_was_killed_at_each_step_is_completed_by_the_repeated_order(
    tmp_path: Path,
) -> None:
    for step in range(1, 7):
        operations = [("send",), ("deliver", 0, step, True), ("deliver", 0, 0, True)]
        world = asyncio.run(run(operations, tmp_path / str(step)))
        assert (world.status, world.machine.starts) == ("RUNNING", Counter({0: 1})), step


def test_a_stopped_session_is_not_started_by_a_late_order(tmp_path: Path) -> None:
    operations = [("send",), ("stop",), ("send",), ("deliver", 1, 0, True), ("deliver", 0, 0, True)]
    world = asyncio.run(run(operations, tmp_path))
    assert (world.status, world.machine.starts) == ("ENDED", Counter())
    marker = world.folders.marker(SESSION)
    assert marker is not None
    assert marker.phase is Phase.CLOSED
