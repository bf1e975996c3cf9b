"""Store of session callbacks: status changes to deliver, in order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import ENDED

from ..database import Database
from ..tables.accounts import keypairs, users
from ..tables.callbacks import session_callbacks
from ..tables.sessions import sessions, status_history

_TEXT_LIMIT = 255


@dataclass(frozen=True, slots=True)
class CallbackDelivery:
    """A status change to deliver now.

    ``id`` is the id of the change in ``status_history``. ``previous_id`` is the id of the last
    change that was delivered or skipped. ``tries`` is the number of failed attempts.
    """

    session_id: str
    previous_id: int
    tries: int
    id: int
    at: datetime
    from_status: str
    to_status: str
    reason: str
    url: str
    name: str
    owner: str
    owner_id: str
    access_key: str
    secret_key_encrypted: str | None = field(repr=False)
    result: str
    exit_code: int | None


class CallbackStore:
    """Reads due deliveries and writes their results. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def due(
        self, now: datetime, busy: Collection[str], full: Collection[str], per_owner: int
    ) -> list[CallbackDelivery]:
        """Return the next due delivery of each session, at most ``per_owner`` per owner.

        Skip the sessions in ``busy`` and the owners in ``full``.
        """
        values = {"now": now, "busy": list(busy), "full": list(full), "per_owner": per_owner}
        async with self._db.read() as tx:
            rows = await tx.execute(_DUE, values)
            return [CallbackDelivery(*row[:-1]) for row in rows]

    async def mark_delivered(self, delivery: CallbackDelivery, at: datetime) -> None:
        counted = session_callbacks.c.delivered + 1
        await self._write(
            delivery, _advanced(delivery, at) | {"delivered": counted, "last_error": ""}
        )

    async def mark_skipped(self, delivery: CallbackDelivery, at: datetime, error: str) -> None:
        """Skip a delivery after its last attempt, to unblock the following deliveries."""
        counted = session_callbacks.c.given_up + 1
        values = _advanced(delivery, at) | {"given_up": counted, "last_error": error[:_TEXT_LIMIT]}
        await self._write(delivery, values)

    async def mark_failed(self, delivery: CallbackDelivery, next_at: datetime, error: str) -> None:
        values = {"tries": delivery.tries + 1, "next_at": next_at}
        await self._write(delivery, values | {"last_error": error[:_TEXT_LIMIT]})

    async def _write(self, delivery: CallbackDelivery, values: dict[str, Any]) -> None:
        # Compare-and-set: another manager may already have delivered the change.
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(session_callbacks)
                .where(
                    session_callbacks.c.session_id == delivery.session_id,
                    session_callbacks.c.told_id == delivery.previous_id,
                )
                .values(values)
            )


def _advanced(delivery: CallbackDelivery, at: datetime) -> dict[str, Any]:
    """Return the values to write after a delivery or a skip."""
    is_open = delivery.to_status not in ENDED
    return {"told_id": delivery.id, "tries": 0, "next_at": at, "last_at": at, "is_open": is_open}


_next = (
    sa.select(sa.func.min(status_history.c.id))
    .where(
        status_history.c.session_id == session_callbacks.c.session_id,
        status_history.c.id > session_callbacks.c.told_id,
    )
    .correlate(session_callbacks)
    .scalar_subquery()
)
_deliveries = (
    sa.select(
        session_callbacks.c.session_id,
        session_callbacks.c.told_id.label("previous_id"),
        session_callbacks.c.tries,
        status_history.c.id,
        status_history.c.at,
        status_history.c.from_status,
        status_history.c.to_status,
        status_history.c.reason,
        sessions.c.callback_url,
        sessions.c.name,
        users.c.username,
        sessions.c.owner_id,
        sessions.c.access_key,
        keypairs.c.secret_key_encrypted,
        sessions.c.result,
        sessions.c.exit_code,
        sa.func.row_number()
        .over(
            partition_by=sessions.c.owner_id,
            order_by=(session_callbacks.c.next_at, status_history.c.id),
        )
        .label("rank"),
    )
    .join_from(session_callbacks, sessions, session_callbacks.c.session_id == sessions.c.id)
    .join(status_history, status_history.c.id == _next)
    .outerjoin(users, sessions.c.owner_id == users.c.id)
    .outerjoin(keypairs, sessions.c.access_key == keypairs.c.access_key)
    .where(
        session_callbacks.c.is_open,
        session_callbacks.c.next_at <= sa.bindparam("now"),
        session_callbacks.c.session_id.not_in(sa.bindparam("busy", expanding=True)),
        sessions.c.owner_id.not_in(sa.bindparam("full", expanding=True)),
    )
    .subquery()
)
_DUE = (
    sa.select(_deliveries)
    .where(_deliveries.c.rank <= sa.bindparam("per_owner"))
    .order_by(_deliveries.c.rank, _deliveries.c.id)
)
