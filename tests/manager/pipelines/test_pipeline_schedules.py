"""Schedules of pipelines create runs at set times, once for each start."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    QuotaExceeded,
)
from bai_services.db.pipelines.schedules import PipelineScheduleStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.manager.context import ManagerContext
from bai_services.manager.pipelines.schedule_runner import PipelineScheduleRunner
from bai_services.manager.scheduling.lease import Lease
from tests.manager.test_schedule_runner import KilledError, killed_before
from tests.testbed.manager import Api

TEXT = """\
version: 1
name: train
max_concurrent_runs: 100
parameters: [{name: epochs, type: integer, default: 1}]
tasks:
- {name: check, kind: approval}
"""


class Scheduled:
    """A pipeline of ``user`` and the loop of its schedules."""

    def __init__(self, api: Api, user: Client) -> None:
        self.api = api
        self.user = user
        self.manager = api.world.manager
        self.lease = Lease(LeaseStore(self.manager.database), api.world.clock, seconds=10**9)

    def runner(self) -> PipelineScheduleRunner:
        """Return the loop of a manager that has just started."""
        manager = self.manager
        context = ManagerContext(
            database=manager.database,
            clock=manager.clock,
            audit=manager.audit,
            events=manager.events,
            capacity_changed=manager.capacity_changed,
            sign_outs_due=manager.sign_outs_due,
            read_only=manager.read_only,
        )
        return PipelineScheduleRunner(
            context,
            PipelineScheduleStore(manager.database),
            manager.pipelines.runs,
            manager.accounts.callers,
            manager.read_only.require_writable,
            lease=self.lease,
        )

    async def create(self, **fields: Any) -> dict[str, Any]:
        body = {"pipeline": "train", "name": "hourly", "every_minutes": 60, **fields}
        return dict(await self.user.post("/pipeline-schedules", body))

    async def change(self, key: str, **changes: Any) -> dict[str, Any]:
        return dict(await self.user.patch(f"/pipeline-schedules/{key}", changes))

    async def get(self) -> dict[str, Any]:
        (found,) = (await self.user.get("/pipeline-schedules"))["items"]
        return dict(found)

    async def runs(self) -> list[dict[str, Any]]:
        return list((await self.user.get("/pipeline-runs", sort="created_at", limit=200))["items"])

    async def step_after(self, minutes: float) -> None:
        self.api.world.clock.advance(minutes=minutes)
        await self.runner().step()


@pytest.fixture
async def scheduled(api: Api) -> Scheduled:
    await api.world.manager.folders.start()
    found = Scheduled(api, await api.client("user"))
    assert await found.lease.hold() is not None
    await found.user.post("/pipelines", {"definition": TEXT})
    return found


async def test_schedule_creates_runs_with_its_parameters(scheduled: Scheduled) -> None:
    made = await scheduled.create(parameters={"epochs": "5"})
    await scheduled.step_after(59)
    assert await scheduled.runs() == []
    await scheduled.step_after(1.5)
    await scheduled.runner().step()
    (run,) = await scheduled.runs()
    assert run["parameters"] == {"epochs": 5}
    assert (run["owner"], run["cause"]) == ("user", "schedule hourly")
    found = await scheduled.get()
    assert (found["last_run_id"], found["last_message"]) == (run["id"], "")
    assert found["last_start_at"] == made["next_starts"][0]
    assert found["next_starts"][0] == made["next_starts"][1]


async def test_rule_is_in_the_time_zone_of_the_schedule(scheduled: Scheduled) -> None:
    made = await scheduled.create(every_minutes=None, start="daily 02:00", time_zone="Asia/Seoul")
    assert made["next_starts"][0].endswith("T17:00:00+00:00")


@pytest.mark.parametrize(("catch_up", "runs"), [("skip", 0), ("last", 1), ("all", 4)])
async def test_missed_starts_create_runs_according_to_catch_up(
    scheduled: Scheduled, catch_up: str, runs: int
) -> None:
    await scheduled.create(catch_up=catch_up)
    await scheduled.step_after(4 * 60 + 30)
    await scheduled.step_after(1)
    assert len(await scheduled.runs()) == runs
    assert bool((await scheduled.get())["last_message"]) == (runs == 0)


async def test_paused_schedule_creates_no_runs(scheduled: Scheduled) -> None:
    key = (await scheduled.create())["id"]
    assert (await scheduled.change(key, is_paused=True))["next_starts"] == []
    await scheduled.step_after(300)
    assert await scheduled.runs() == []
    await scheduled.change(key, is_paused=False)
    await scheduled.runner().step()
    assert await scheduled.runs() == []
    await scheduled.step_after(61)
    assert len(await scheduled.runs()) == 1


async def test_refused_run_is_explained(scheduled: Scheduled) -> None:
    await scheduled.create()
    text = (
        TEXT.replace("default: 1", "default: 2")
        .replace("epochs", "needed")
        .replace(", default: 2", "")
    )
    await scheduled.user.patch("/pipelines/train", {"definition": text})
    await scheduled.step_after(61)
    assert await scheduled.runs() == []
    assert "needed needs a value" in (await scheduled.get())["last_message"]


async def test_audit_log_contains_exactly_the_changed_fields(scheduled: Scheduled) -> None:
    key = (await scheduled.create(parameters={"epochs": 5}))["id"]

    async def changes() -> dict[str, Any]:
        admin = await scheduled.api.client("admin")
        entries = await admin.get("/audit-log", action="pipeline.change-schedule", sort="-id")
        return dict(entries["items"][0]["details"]["changes"])

    await scheduled.change(key, is_paused=True)
    assert set(await changes()) == {"is_paused", "next_start_at"}
    await scheduled.change(key, parameters={"epochs": 6})
    assert await changes() == {"parameters": {"before": {"epochs": 5}, "after": {"epochs": 6}}}


async def test_administrators_only_pause_and_delete(scheduled: Scheduled) -> None:
    key = (await scheduled.create())["id"]
    path = f"/pipeline-schedules/{key}"
    admin, other = await scheduled.api.client("admin"), await scheduled.api.client("user2")
    with pytest.raises(Forbidden, match="only the owner") as refused:
        await admin.patch(path, {"every_minutes": 5})
    assert refused.value.details["action"] == "pipeline.manage"
    assert (await admin.patch(path, {"is_paused": True}))["is_paused"]
    with pytest.raises(BaiError, match="no schedule"):
        await other.patch(path, {"is_paused": False})
    await admin.delete(path)
    assert (await scheduled.user.get("/pipeline-schedules"))["items"] == []


async def test_invalid_schedules_are_refused(
    scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fields in (
        {"start": "daily 02:00"},
        {"every_minutes": None},
        {"every_minutes": None, "start": "sometimes"},
        {"time_zone": "Mars/Base"},
        {"parameters": {"speed": 1}},
        {"name": "no slug!"},
    ):
        with pytest.raises(InvalidRequest):
            await scheduled.create(**fields)
    made = await scheduled.create()
    with pytest.raises(AlreadyExists):
        await scheduled.create()
    with pytest.raises(Conflict):
        await scheduled.change(made["id"], version=7, every_minutes=10)
    monkeypatch.setattr("bai_services.db.pipelines.schedules.MAX_SCHEDULES_PER_PIPELINE", 1)
    with pytest.raises(QuotaExceeded):
        await scheduled.create(name="second")


@pytest.mark.both_databases
async def test_kills_neither_lose_nor_repeat_a_start(scheduled: Scheduled) -> None:
    await scheduled.create()
    for number in itertools.count(1, 3):
        was_killed = False
        scheduled.api.world.clock.advance(minutes=60)
        try:
            with killed_before(number):
                await scheduled.runner().step()
        except KilledError:
            was_killed = True
        await scheduled.runner().step()
        page = await scheduled.user.get("/pipeline-runs", limit=1)
        assert page["total"] == (number - 1) // 3 + 1
        if not was_killed:
            break
    assert number > 9
