"""Compare usage records and totals with a naive integration of the history of all sessions."""

from __future__ import annotations

import random
from collections import Counter

import sqlalchemy as sa

from bai_services.core.usage.model import HOUR, SESSIONS, WAITING, HourTotals, Prices
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore
from tests.testbed.usage_history import Usage, integrated_usage

from .world import World


async def check_usage(world: World) -> None:
    """Check the records and the hourly totals; then damage and rebuild records, and check again."""
    expected = await integrated_usage(world.database, world.now)
    assert await recorded(world) == expected
    store = UsageAggregateStore(world.database)
    assert await store.rebuild(None) == 0, "a record was missing"
    chance = random.Random(len(expected))
    lost = [key for key in sorted(expected) if chance.random() < 0.3]
    c = usage_records.c
    for session_id, slot in lost:
        where = (c.session_id == session_id, c.slot == slot)
        await world.write(
            sa.delete(usage_records).where(*where)
            if chance.random() < 0.5
            else sa.update(usage_records).where(*where).values(ended_at=None)
        )
    await store.rebuild(None)
    assert await recorded(world) == expected


async def recorded(world: World) -> Usage:
    """Return the amount times seconds of each session and slot, from the records of each hour."""
    store = UsageAggregateStore(world.database)
    end = int(world.now.timestamp())
    first = await store.first_record()
    usage: Usage = Counter()
    by_slot: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for hour in range((first or end) // HOUR * HOUR, end, HOUR):
        until = min(hour + HOUR, end)
        of_hour = HourTotals(hour, Prices())
        for record in await store.records_between(hour, until):
            seconds = record.seconds_in(hour, until)
            if record.ended_at is not None:
                of_hour.add(record)
                by_slot[SESSIONS if record.slot == WAITING else record.slot] += (
                    record.amount * seconds
                )
            # An open wait is not in the table of records; ``records_between`` adds it.
            if seconds and not (record.slot == WAITING and record.ended_at is None):
                usage[record.session_id, record.slot] += record.amount * seconds
        for (_, slot), found in of_hour.facts.items():
            totals[slot] += round(found.allocated + found.waited)
    assert totals == by_slot
    return usage
