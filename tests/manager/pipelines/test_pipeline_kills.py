"""A manager that is killed at any statement neither loses nor duplicates a task of a pipeline."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict
from bai_services.core.listing import ListQuery
from bai_services.core.pipelines.records import PipelineRunDetail
from bai_services.core.sessions.lifecycle import LIVE, Result, Status
from bai_services.db.pipelines.runs import PipelineRunStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.tables.sessions import sessions
from bai_services.manager.context import ManagerContext
from bai_services.manager.manager import Manager
from bai_services.manager.pipelines.runner import MAX_ROUNDS_PER_STEP, PipelineRunner
from bai_services.manager.scheduling.lease import Lease
from tests.manager.test_schedule_runner import KilledError, killed_before
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

DEFINITION = """\
version: 1
name: killed
max_concurrent_runs: 100
defaults: {resources: {cpu: 1, mem: 1g}}
tasks:
- {name: first, command: x, retries: 1, retry_delay: 0}
- {name: each, command: x, needs: [first], for_each: {values: [a, b]}}
- {name: check, kind: approval, needs: [each]}
- {name: last, command: x, needs: [check]}
"""


class Scenario:
    """A run that several managers process; each is killed at the same statement."""

    def __init__(self, manager: Manager, caller: Caller, lease: Lease, kill_at: int) -> None:
        self.manager = manager
        self.caller = caller
        self.lease = lease
        self.kill_at = kill_at
        self.was_killed = False
        self.run_id = ""

    async def interrupted(self, action: Callable[[], Awaitable[object]]) -> bool:
        """Run an action that is killed at the statement; return whether it was completed."""
        try:
            with killed_before(self.kill_at):
                await action()
        except KilledError:
            self.was_killed = True
            return False
        return True

    async def step(self) -> PipelineRunDetail:
        """Process the run with a manager that is killed, then with a new manager."""
        await self.interrupted(runner_of(self.manager, self.lease).step)
        await runner_of(self.manager, self.lease).step()
        return await self.detail()

    async def detail(self) -> PipelineRunDetail:
        return await self.manager.pipelines.runs.get(self.caller, self.run_id)

    async def sessions(self) -> Counter[tuple[str, str]]:
        """Return the sessions of the run: their number by task and attempt."""
        page = await self.manager.sessions.sessions.page(self.caller, ListQuery(limit=500))
        return Counter(
            (str(each.environ["PIPELINE_TASK"]), str(each.environ["PIPELINE_ATTEMPT"]))
            for each in page.items
            if each.environ.get("PIPELINE_RUN") == self.run_id
        )

    async def approve(self, task: str) -> None:
        """Approve a task; a client that gets no response repeats the request."""
        runs = self.manager.pipelines.runs

        async def answer() -> None:
            await runs.answer(self.caller, self.run_id, task, is_approved=True)

        if not await self.interrupted(answer):
            with contextlib.suppress(Conflict):  # The first request was stored.
                await answer()

    async def end(self, task: str, result: Result) -> None:
        """End the sessions of a task. In this test, the sessions have no agent."""
        for each in (await self.detail()).task_runs:
            if each.task == task:
                async with self.manager.database.write() as tx:
                    await tx.execute(
                        sa.update(sessions)
                        .where(sessions.c.id == each.session)
                        .values(status=Status.TERMINATED, result=result, live_name=None)
                    )


def runner_of(manager: Manager, lease: Lease) -> PipelineRunner:
    """Return the runner of a manager that has just started."""
    context = ManagerContext(
        database=manager.database,
        clock=manager.clock,
        audit=manager.audit,
        events=manager.events,
        capacity_changed=manager.capacity_changed,
        sign_outs_due=manager.sign_outs_due,
        read_only=manager.read_only,
    )
    return PipelineRunner(
        context,
        PipelineRunStore(manager.database),
        manager.sessions.sessions,
        manager.sessions.session_setups,
        manager.accounts.callers,
        manager.read_only.require_writable,
        lease=lease,
    )


async def run_to_the_end(scenario: Scenario) -> None:
    await scenario.step()
    assert await scenario.sessions() == {("first", "1"): 1}
    await scenario.end("first", Result.FAILURE)
    await scenario.step()
    await scenario.step()
    assert await scenario.sessions() == {("first", "1"): 1, ("first", "2"): 1}
    await scenario.end("first", Result.SUCCESS)
    await scenario.step()
    expected = {("first", "1"): 1, ("first", "2"): 1, ("each", "1"): 2}
    assert await scenario.sessions() == expected
    await scenario.end("each", Result.SUCCESS)
    await scenario.step()
    assert await scenario.sessions() == expected
    await scenario.approve("check")
    await scenario.step()
    assert await scenario.sessions() == expected | {("last", "1"): 1}
    await scenario.end("last", Result.SUCCESS)
    detail = await scenario.step()
    assert detail.run.status == "succeeded"


async def cancel(scenario: Scenario) -> None:
    await scenario.step()
    runs = scenario.manager.pipelines.runs
    if not await scenario.interrupted(lambda: runs.cancel(scenario.caller, scenario.run_id)):
        await runs.cancel(scenario.caller, scenario.run_id)
    await scenario.step()
    detail = await scenario.step()
    assert detail.run.status == "cancelled"
    assert await scenario.sessions() == {("first", "1"): 1}
    page = await scenario.manager.sessions.sessions.page(scenario.caller, ListQuery(limit=500))
    assert not [each for each in page.items if each.status in LIVE]


# A kill at each statement would take minutes.
@pytest.mark.parametrize(("job", "stride"), [(run_to_the_end, 17), (cancel, 7)])
async def test_no_task_is_lost_or_repeated_by_kills(
    api: Api, job: Callable[[Scenario], Awaitable[None]], stride: int
) -> None:
    manager = api.world.manager
    caller = await api.world.caller("user")
    await FakeAgent(api.agent).beat()
    await manager.folders.start()
    await manager.pipelines.pipelines.create(caller, {"definition": DEFINITION})
    lease = Lease(LeaseStore(manager.database), api.world.clock, seconds=10**6)
    assert await lease.hold() is not None
    for number in itertools.count(1, stride):
        scenario = Scenario(manager, caller, lease, number)
        scenario.run_id = (await manager.pipelines.runs.create(caller, "killed", {})).id
        await job(scenario)
        if not scenario.was_killed:
            break
    assert number > 15


async def test_refused_sessions_do_not_delay_other_runs(api: Api) -> None:
    """A step of the runner ends even if it must refuse 1,000 tasks one after the other."""
    manager = api.world.manager
    caller = await api.world.caller("user")
    await manager.folders.start()
    tasks = "".join(
        f"- {{name: t{number}, command: x, image: no-such-image, continue_on_failure: true}}\n"
        for number in range(MAX_ROUNDS_PER_STEP + 3)
    )
    text = f"version: 1\nname: refused\nmax_parallel_tasks: 1\ntasks:\n{tasks}"
    await manager.pipelines.pipelines.create(caller, {"definition": text})
    key = (await manager.pipelines.runs.create(caller, "refused", {})).id
    lease = Lease(LeaseStore(manager.database), api.world.clock, seconds=10**6)
    runner = runner_of(manager, lease)
    await runner.step()
    run = (await manager.pipelines.runs.get(caller, key)).run
    assert run.tasks_by_status == {"failed": MAX_ROUNDS_PER_STEP, "queued": 1, "waiting": 2}
    await runner.step()
    assert (await manager.pipelines.runs.get(caller, key)).run.status == "succeeded"


async def test_number_of_definitions_in_memory_is_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = api.world.manager
    caller = await api.world.caller("user")
    await manager.folders.start()
    monkeypatch.setattr("bai_services.manager.pipelines.runner.MAX_DEFINITIONS", 2)
    runs, keys = manager.pipelines.runs, []
    for name in ("a", "b", "c"):
        text = f"version: 1\nname: {name}\ntasks:\n- {{name: check, kind: approval}}\n"
        await manager.pipelines.pipelines.create(caller, {"definition": text})
        keys += [(await runs.create(caller, name, {})).id for _ in range(2)]
    runner = runner_of(manager, Lease(LeaseStore(manager.database), api.world.clock, seconds=10**6))
    await runner.step()
    assert runner.definitions_in_memory == 2
    for key in keys:
        await runs.answer(caller, key, "check", is_approved=True)
    await runner.step()
    assert {(await runs.get(caller, key)).run.status for key in keys} == {"succeeded"}
