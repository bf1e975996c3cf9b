"""Compare usage records and totals with a naive integration of the history of all sessions."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import OCCUPYING, Status
from bai_services.core.usage.model import HOUR, SESSIONS, WAITING, HourTotals, Prices
from bai_services.db.tables.sessions import sessions, status_history
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore

from .world import World

Usage = Counter[tuple[str, str]]


async def check_usage(world: World) -> None:
    """Check the records and the hourly totals; check the records again after some were lost and
    rebuilt.
    """
    expected = await integrated(world)
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


async def integrated(world: World) -> Usage:
    """Return the amount times seconds of each session and slot, from the history."""
    usage: Usage = Counter()
    async with world.database.read() as tx:
        rows = (await tx.execute(sa.select(sessions))).all()
        history = sa.select(status_history).order_by(status_history.c.id)
        steps = (await tx.execute(history)).all()
    for row in rows:
        at, status, waited = row.created_at, Status.PENDING, 0
        for step in [*(s for s in steps if s.session_id == row.id), None]:
            until: datetime = world.now if step is None else step.at
            while at < until:
                at += timedelta(seconds=1)
                if status in OCCUPYING:
                    usage[row.id, SESSIONS] += 1
                    for slot, amount in row.requested_slots.items():
                        usage[row.id, slot] += amount
                elif status is Status.PENDING:
                    waited += 1
            if step is not None:
                at, status = step.at, Status(step.to_status)
                # A move to another resource group ends a wait, and the next wait begins.
                usage[row.id, WAITING] += waited
                waited = 0
    return Counter({key: amount for key, amount in usage.items() if amount})
