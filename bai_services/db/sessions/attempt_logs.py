"""Output of earlier kernel attempts. All functions run in the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.logs import AttemptLog

from ..records import records
from ..tables.sessions import kernel_attempts, kernels
from .rows import LOG_LIMIT, stored_log

# Maximum number of earlier attempts of a kernel.
MAX_ATTEMPTS = 100

_ATTEMPT_LOG = (
    kernel_attempts.c.attempt,
    kernel_attempts.c.ended_at,
    kernel_attempts.c.reason,
    kernel_attempts.c.log,
)


async def end_attempt(
    tx: AsyncConnection, session_id: str, attempt: int, at: datetime, reason: str
) -> None:
    """Move the current output of a session's kernels to ``kernel_attempts``."""
    own = kernels.c.session_id == session_id
    columns = ("kernel_id", "attempt", "agent_id", "ended_at", "reason", "log")
    ended = sa.select(
        kernels.c.id,
        sa.literal(attempt),
        kernels.c.agent_id,
        sa.literal(at, kernel_attempts.c.ended_at.type),
        sa.literal(reason),
        sa.func.coalesce(kernels.c.log, ""),
    ).where(own)
    await tx.execute(sa.insert(kernel_attempts).from_select(columns, ended))
    # Set the log to "", not NULL: the retention of logs skips kernels whose log is NULL, and would
    # never delete these attempts.
    await tx.execute(sa.update(kernels).where(own).values(log=""))
    for kernel_id in await tx.scalars(sa.select(kernels.c.id).where(own)):
        await _trim(tx, kernel_id)


async def add_log(tx: AsyncConnection, is_attempt: sa.ColumnElement[bool], log: str) -> None:
    """Store the output of one attempt, unless its output is already stored.

    ``is_attempt``: the condition on ``kernel_attempts`` that selects the attempt.
    """
    row = (
        await tx.execute(
            sa.update(kernel_attempts)
            .where(is_attempt, kernel_attempts.c.log == "")
            .values(log=stored_log(log))
            .returning(kernel_attempts.c.kernel_id)
        )
    ).first()
    if row is not None:
        await _trim(tx, row.kernel_id)


async def logs_of(
    tx: AsyncConnection, kernel_ids: Collection[str]
) -> Mapping[str, list[AttemptLog]]:
    """Return the earlier attempts of kernels by kernel id, oldest first."""
    found: defaultdict[str, list[AttemptLog]] = defaultdict(list)
    rows = await tx.execute(
        sa.select(kernel_attempts.c.kernel_id, *_ATTEMPT_LOG)
        .where(kernel_attempts.c.kernel_id.in_(kernel_ids))
        .order_by(kernel_attempts.c.kernel_id, kernel_attempts.c.attempt)
    )
    for kernel_id, *values in rows:
        found[kernel_id].append(AttemptLog(*values))
    return found


async def of_kernel(tx: AsyncConnection, session_id: str, hostname: str) -> list[AttemptLog]:
    """Return the earlier attempts of one kernel, oldest first."""
    rows = await tx.execute(
        sa.select(*_ATTEMPT_LOG)
        .join(kernels, kernels.c.id == kernel_attempts.c.kernel_id)
        .where(kernels.c.session_id == session_id, kernels.c.hostname == hostname)
        .order_by(kernel_attempts.c.attempt)
    )
    return records(AttemptLog, rows)


async def remove(tx: AsyncConnection, kernel_ids: sa.Select[tuple[str]]) -> None:
    """Remove the earlier attempts of kernels."""
    await tx.execute(sa.delete(kernel_attempts).where(kernel_attempts.c.kernel_id.in_(kernel_ids)))


async def _trim(tx: AsyncConnection, kernel_id: str) -> None:
    """Keep the newest attempts up to LOG_LIMIT characters or MAX_ATTEMPTS; delete older ones."""
    lengths = await tx.execute(
        sa.select(kernel_attempts.c.attempt, sa.func.length(kernel_attempts.c.log))
        .where(kernel_attempts.c.kernel_id == kernel_id)
        .order_by(kernel_attempts.c.attempt.desc())
    )
    total = 0
    for count, (attempt, length) in enumerate(lengths, 1):
        total += length
        if total >= LOG_LIMIT or count >= MAX_ATTEMPTS:
            await tx.execute(
                sa.delete(kernel_attempts).where(
                    kernel_attempts.c.kernel_id == kernel_id, kernel_attempts.c.attempt < attempt
                )
            )
            return
