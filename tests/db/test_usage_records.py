"""Usage records: written with each change of a session, and rebuilt from the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import Event, SessionType
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore

from .usage_oracle import check_usage
from .world import GIB, NOW, World, make_world

T0 = int(NOW.timestamp())


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def records(world: World) -> list[tuple[Any, ...]]:
    """Return (has a kernel, slot, device, model, amount, start, end) of each record.

    Times are seconds after ``NOW``; an end of None means that the record is open.
    """
    c = usage_records.c
    columns = (c.kernel_id, c.slot, c.device_id, c.device_model, c.amount, c.started_at, c.ended_at)
    async with world.database.read() as tx:
        rows = await tx.execute(sa.select(*columns).order_by(c.session_id, c.started_at, c.slot))
        return [
            (bool(row[0]), *row[1:5], row[5] - T0, None if row[6] is None else row[6] - T0)
            for row in rows
        ]


async def run_life(world: World) -> None:
    """Let a session wait 10 s, hold resources 60 s, wait 5.5 s and hold resources 20 s."""
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    world.advance(10)
    await world.run_pass()
    await world.sessions.move(row.id, Event.DISPLACED, world.advance(60))
    world.advance(5.5)
    await world.run_pass()
    for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
        await world.sessions.move(row.id, event, world.now)
    await world.sessions.move(row.id, Event.EXITED, world.advance(20))


LIFE = sorted(
    [
        (False, "waiting", "", "", 1, 0, 10),
        (False, "waiting", "", "", 1, 70, 75),
        *(
            (is_kernel, slot, device, model, amount, start, end)
            for start, end in ((10, 70), (75, 95))
            for is_kernel, slot, device, model, amount in (
                (True, "cpu", "", "", 1000),
                (True, "mem", "", "", GIB),
                (True, "cuda.shares", "a1-g0", "Simulated", 250),
                (False, "sessions", "", "", 1),
            )
        ),
    ]
)


async def test_each_change_is_recorded_exactly(world: World) -> None:
    await run_life(world)
    assert sorted(await records(world)) == LIFE


async def test_kind_of_a_session_is_recorded_and_rebuilt(world: World) -> None:
    c = usage_records.c

    async def kinds() -> set[tuple[str, str]]:
        async with world.database.read() as tx:
            rows = await tx.execute(sa.select(c.slot, c.session_kind))
            return {(slot, kind) for slot, kind in rows}

    for name, facts in (("batch", {}), ("task", {"is_pipeline_task": True})):
        new = world.new_session(name, {"cpu": "1"}, type=SessionType.BATCH, **facts)
        await world.sessions.enqueue(new, world.now)
    world.advance(5)
    await world.run_pass()
    expected = {
        (slot, kind)
        for slot in ("cpu", "sessions", "waiting")
        for kind in ("batch", "pipeline-task")
    }
    assert await kinds() == expected
    await world.write(sa.delete(usage_records))
    await UsageAggregateStore(world.database).rebuild(None)
    assert await kinds() == expected


async def test_wait_of_cancelled_session_is_recorded(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.advance(7))
    assert await records(world) == [(False, "waiting", "", "", 1, 0, 7)]


async def test_rebuild_restores_missing_records_and_missing_ends(world: World) -> None:
    await run_life(world)
    row, _ = await world.sessions.enqueue(world.new_session("open"), world.now)
    await world.run_pass()
    complete = await records(world)
    await world.write(
        sa.delete(usage_records).where(usage_records.c.slot.in_(["cpu", "waiting"])),
        sa.update(usage_records).where(usage_records.c.slot == "mem").values(ended_at=None),
    )
    store = UsageAggregateStore(world.database)
    assert await store.rebuild(None) > 0
    assert await records(world) == complete
    assert await store.rebuild(None) == 0


async def test_zero_length_record_is_replaced_in_the_same_second(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab", {"cpu": "1"}), NOW)
    await world.run_pass()
    await world.sessions.move(row.id, Event.DISPLACED, NOW + timedelta(seconds=0.1))
    world.now += timedelta(seconds=0.2)
    await world.run_pass()
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.advance(9))
    assert [r[1:] for r in await records(world)] == [
        ("cpu", "", "", 1000, 0, 9),
        ("sessions", "", "", 1, 0, 9),
    ]


@pytest.mark.parametrize("fraction", [0.0004, 0.9994, 0.9995, 0.999999])
async def test_rebuild_repeats_no_record_whose_times_have_a_fraction(
    world: World, fraction: float
) -> None:
    """``strftime`` of SQLite rounds to milliseconds, so it puts 0.9995 s into the next second."""
    world.advance(fraction)
    row, _ = await world.sessions.enqueue(world.new_session("lab", {"cpu": "1"}), world.now)
    for _ in range(2):
        world.advance(11)
        await world.run_pass()
        await world.sessions.move(row.id, Event.DISPLACED, world.advance(7))
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.advance(5))
    written = await records(world)
    store = UsageAggregateStore(world.database)
    assert await store.rebuild(None, T0 - 60) == 0
    assert await records(world) == written
    # After their deletion, all records are rebuilt from the ledger and the history.
    await world.write(sa.delete(usage_records))
    await store.rebuild(None)
    assert await records(world) == written
    await check_usage(world)


async def test_pending_session_has_waited_from_the_second_of_its_creation(world: World) -> None:
    await world.sessions.enqueue(world.new_session("lab"), world.advance(0.9996))
    assert await UsageAggregateStore(world.database).first_record() == T0


async def test_rebuild_changes_nothing_after_the_clock_was_set_back(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    world.advance(10)
    await world.run_pass()
    await world.sessions.move(row.id, Event.DISPLACED, world.advance(60))
    world.now = NOW + timedelta(seconds=20)
    await world.run_pass()
    await world.sessions.move(row.id, Event.DISPLACED, NOW + timedelta(seconds=30))
    world.now = NOW + timedelta(seconds=90)
    await world.run_pass()
    waits = [r for r in await records(world) if r[1] == "waiting"]
    assert [r[5:] for r in waits] == [(0, 10), (30, 90)]
    await UsageAggregateStore(world.database).rebuild(None)
    assert [r for r in await records(world) if r[1] == "waiting"] == waits


async def test_move_to_another_group_ends_a_wait_and_begins_another(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.sessions.move(row.id, Event.MOVED, world.advance(7))
    world.advance(3)
    await check_usage(world)
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.now)
    assert [r[1:] for r in await records(world)] == [
        ("waiting", "", "", 1, 0, 7),
        ("waiting", "", "", 1, 7, 10),
    ]
    await check_usage(world)
