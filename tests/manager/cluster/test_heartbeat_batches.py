"""Batches of heartbeats have the effect of the same heartbeats, processed one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.errors import NotFound
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import AgentHeartbeat, AgentStore
from bai_services.db.tables import cluster
from bai_services.manager.cluster.heartbeat_batches import (
    FULL_INTERVAL_SECONDS,
    HeartbeatBatches,
    is_repeated,
)
from tests.db.world import NOW, World, make_world

AGENTS = ("a1", "b1", "b2", "b3")
COLLECTS_SECONDS = 0.005
BEAT = AgentHeartbeat(
    resource_group="main",
    engine="process",
    endpoint="",
    architecture="x86_64",
    version="1",
    facts={"load": 0},
    slots={"cpu": 8000, "mem": 2**34},
)
TABLES = (
    (cluster.agents, "id"),
    (cluster.agent_slots, "agent_id"),
    (cluster.devices, "id"),
)


def device(agent_id: str, index: int, **facts: Any) -> NewDevice:
    return NewDevice(f"{agent_id}-g{index}", "cuda", index, "A", 2**34, None, True, True, facts)


class Reports:
    """Stores the kernels that it receives; rejects those of ``failing``."""

    def __init__(self) -> None:
        self.received: list[dict[str, Sequence[Mapping[str, Any]]]] = []
        self.failing = ""

    async def observe(self, reports: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        if self.failing in reports:
            raise ValueError("invalid kernels")
        self.received.append(dict(reports))


class Setup:
    """``batches`` of the database of ``world``, with its own clock."""

    def __init__(self, world: World, seconds: float = COLLECTS_SECONDS) -> None:
        self.world, self.reports, self.now = world, Reports(), 0.0
        self.store = AgentStore(world.database)
        self.batches = HeartbeatBatches(self.store, self.reports, lambda: seconds, lambda: self.now)

    async def send(self, beats: Mapping[str, AgentHeartbeat], at: float = 0) -> list[Any]:
        """Send heartbeats at the same time; return the results and errors."""
        moment = NOW + timedelta(seconds=at)
        return await asyncio.gather(
            *(self.batches.process(key, beat, [], moment) for key, beat in beats.items()),
            return_exceptions=True,
        )

    async def content(self) -> list[list[tuple[Any, ...]]]:
        async with self.world.database.read() as tx:
            return [
                [tuple(row) for row in await tx.execute(sa.select(table).order_by(key, table.c[1]))]
                for table, key in ((table, getattr(table.c, column)) for table, column in TABLES)
            ]


@asynccontextmanager
async def made_setup(folder: Path, seconds: float = COLLECTS_SECONDS) -> AsyncIterator[Setup]:
    world = await make_world(f"sqlite+aiosqlite:///{folder}/{seconds}.sqlite")
    made = Setup(world, seconds)
    yield made
    await made.batches.stop()
    await world.close()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with made_setup(tmp_path) as made:
        yield made


def changed(beat: AgentHeartbeat, agent_id: str, random_: random.Random) -> AgentHeartbeat:
    """Return the next heartbeat of an agent; in most cases, only its facts differ."""
    facts = {"load": random_.randrange(3)}
    devices = [replace(one, facts={"use": random_.randrange(3)}) for one in beat.devices]
    match random_.randrange(10):
        case 0:
            devices = [device(agent_id, index) for index in range(random_.randrange(3))]
        case 1:
            devices = [replace(one, is_healthy=random_.random() < 0.5) for one in devices]
        case 2:
            devices = [replace(one, facts={"shares": None}) for one in devices]
        case 3:
            return replace(beat, slots={"cpu": random_.choice([4000, 8000]), "mem": 2**34})
        case 4:
            return replace(beat, is_leaving=not beat.is_leaving)
        case 5:
            # Another agent may have this device.
            devices = [*(one for one in devices if one.id != "a1-g7"), device("a1", 7)]
    return replace(beat, facts=facts, devices=devices, is_leaving=False)


async def test_batches_have_the_effect_of_single_heartbeats(setup: Setup, tmp_path: Path) -> None:
    random_ = random.Random(7)
    beats = {agent_id: BEAT for agent_id in AGENTS}
    async with made_setup(tmp_path, 0.0) as other:
        for round_ in range(60):
            beats = {key: changed(beat, key, random_) for key, beat in beats.items()}
            if random_.random() < 0.2:
                is_lost = cluster.agents.c.id == random_.choice(AGENTS)
                lost = sa.update(cluster.agents).where(is_lost).values(status=AgentStatus.LOST)
                await setup.world.write(lost)
                await other.world.write(lost)
            await setup.send(beats, round_)
            await other.send(beats, round_)
            assert await setup.content() == await other.content(), (round_, beats)


async def test_one_transaction_stores_the_facts_of_all_agents(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = {key: replace(BEAT, devices=[device(key, 8)]) for key in AGENTS}
    await setup.send(beats)
    setup.reports.received.clear()

    async def fail(*_: object) -> None:
        raise AssertionError("a single heartbeat was stored")

    monkeypatch.setattr(setup.store, "record_heartbeat", fail)
    later = {
        key: replace(beat, facts={"load": 1}, devices=[device(key, 8, use=1)])
        for key, beat in beats.items()
    }
    results = await setup.send(later, 5)
    assert {result.status for result in results} == {AgentStatus.ALIVE}
    assert [set(reports) for reports in setup.reports.received] == [set(AGENTS)]
    rows = [await setup.store.one(key) for key in AGENTS]
    assert {row.last_heartbeat_at for row in rows} == {NOW + timedelta(seconds=5)}
    assert {(row.facts["load"], row.devices[-1].facts["use"]) for row in rows} == {(1, 1)}
    # After a minute, slots and devices are compared with the database.
    setup.now += FULL_INTERVAL_SECONDS + 1
    results = await setup.send(later, 70)
    assert {result.status for result in results} == {AgentStatus.ALIVE}


async def test_changes_by_another_manager_are_corrected_after_a_minute(setup: Setup) -> None:
    beats = {key: replace(BEAT, devices=[device(key, 8, use=1)]) for key in AGENTS}
    await setup.send(beats)
    expected = await setup.content()
    for change in (
        sa.update(cluster.devices).values(is_healthy=False),
        sa.update(cluster.devices).values(facts={"use": 7}),
        sa.delete(cluster.devices).where(cluster.devices.c.used == 0),
        sa.update(cluster.agent_slots).values(capacity=1),
        sa.update(cluster.agents).values(version="2"),
    ):
        await setup.world.write(change)
        assert await setup.content() != expected
        setup.now += FULL_INTERVAL_SECONDS + 1
        await setup.send(beats)
        assert await setup.content() == expected


async def test_an_invalid_heartbeat_rejects_no_other(setup: Setup) -> None:
    beats = {"b1": BEAT, "b2": replace(BEAT, resource_group="no-such-group"), "b3": BEAT}
    setup.reports.failing = "b3"
    stored, refused, failed = await setup.send(beats)
    assert stored.is_new
    assert isinstance(refused, NotFound)
    assert isinstance(failed, ValueError)
    assert setup.reports.received == [{"b1": []}]


async def test_a_cancelled_request_does_not_affect_its_batch(setup: Setup) -> None:
    first, second = (
        asyncio.create_task(setup.batches.process(key, BEAT, [], NOW)) for key in ("b1", "b2")
    )
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_new
    assert first.cancelled()
    assert (await setup.store.one("b1")).status == AgentStatus.ALIVE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"facts": {"load": 9}}, True, id="facts"),
        pytest.param({"devices": [device("b1", 0, use=9)]}, True, id="facts of a device"),
        pytest.param({"devices": [device("b1", 0, shares=None)]}, False, id="shares"),
        pytest.param({"devices": []}, False, id="devices"),
        pytest.param({"slots": {"cpu": 1, "mem": 1}}, False, id="slots"),
        pytest.param({"is_leaving": True}, False, id="leaving"),
        pytest.param({"settings": []}, False, id="settings"),
        pytest.param({"protocol": 1}, False, id="protocol"),
    ],
)
def test_heartbeats_that_differ_only_in_facts_are_repeated(
    fields: dict[str, Any], expected: bool
) -> None:
    before = replace(BEAT, devices=[device("b1", 0, use=1)])
    assert is_repeated(before, replace(before, **fields)) is expected
