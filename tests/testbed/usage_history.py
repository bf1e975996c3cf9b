"""Naive integration of the history of all sessions: the expected usage records."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import OCCUPYING, Status
from bai_services.core.usage.model import SESSIONS, WAITING
from bai_services.db.database import Database
from bai_services.db.tables.sessions import sessions, status_history
from bai_services.db.tables.usage import usage_records

# Amount times seconds of each session and slot. A wait that has not ended is not included.
Usage = Counter[tuple[str, str]]


async def integrated_usage(database: Database, now: datetime) -> Usage:
    """Return the usage until ``now``, counted second by second from the history."""
    usage: Usage = Counter()
    async with database.read() as tx:
        rows = (await tx.execute(sa.select(sessions))).all()
        history = sa.select(status_history).order_by(status_history.c.id)
        steps = (await tx.execute(history)).all()
    for row in rows:
        at, status, waited = row.created_at.replace(microsecond=0), Status.PENDING, 0
        for step in [*(s for s in steps if s.session_id == row.id), None]:
            until: datetime = now if step is None else step.at
            # Records have whole seconds.
            until = until.replace(microsecond=0)
            while at < until:
                at += timedelta(seconds=1)
                if status in OCCUPYING:
                    usage[row.id, SESSIONS] += 1
                    for slot, amount in row.requested_slots.items():
                        usage[row.id, slot] += amount
                elif status is Status.PENDING:
                    waited += 1
            if step is not None:
                at, status = until, Status(step.to_status)
                # A move to another resource group also ends a wait.
                if waited:
                    usage[row.id, WAITING] += waited
                    waited = 0
    return Counter({key: amount for key, amount in usage.items() if amount})


async def stored_usage(database: Database) -> Usage:
    """Return the sums of the stored records. All of them must have ended."""
    usage: Usage = Counter()
    async with database.read() as tx:
        records = (await tx.execute(sa.select(usage_records))).all()
    for record in records:
        assert record.ended_at is not None, record
        usage[record.session_id, record.slot] += record.amount * (
            record.ended_at - record.started_at
        )
    return Counter({key: amount for key, amount in usage.items() if amount})
