"""Convert constraint violations to ``BaiError``, and check for references to an entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.counts import counted
from bai_services.core.errors import BaiError, Conflict, InUse, NotFound


@contextmanager
def raise_on_violation(error: BaiError, if_duplicate: BaiError | None = None) -> Iterator[None]:
    """Raise ``error`` if the block raises an IntegrityError.

    For a violation of a unique constraint, raise ``if_duplicate`` instead, if given.
    """
    try:
        yield
    except IntegrityError as cause:
        raise (if_duplicate if if_duplicate is not None and _is_unique(cause) else error) from cause


def _is_unique(cause: IntegrityError) -> bool:
    # 23505 is PostgreSQL's unique_violation; SQLite only reports a message.
    code = getattr(cause.orig, "sqlstate", None)
    return code == "23505" if code is not None else "UNIQUE constraint" in str(cause.orig)


async def require_unused(
    tx: AsyncConnection, what: str, uses: Mapping[str, sa.ColumnElement[bool]]
) -> None:
    """Raise ``InUse`` if rows refer to an entity that is about to be deleted or changed.

    ``what`` is the entity in the message. ``uses`` maps a plural noun for referring rows to the
    condition for these rows; the message contains each noun with its count.
    """
    counts: dict[str, Any] = {}
    for name, condition in uses.items():
        (table,) = {c.table for c in sa.sql.visitors.iterate(condition) if isinstance(c, sa.Column)}
        count = await tx.scalar(sa.select(sa.func.count()).select_from(table).where(condition))
        if count:
            counts[name] = count
    if counts:
        text = ", ".join(counted(count, name) for name, count in counts.items())
        raise InUse(f"{what} is in use by {text}", used_by=counts)


async def delete_unused(
    tx: AsyncConnection,
    what: str,
    row: tuple[sa.Table, sa.ColumnElement[bool]],
    uses: Mapping[str, sa.ColumnElement[bool]],
) -> None:
    """Delete a row without referring rows; ``row`` is a table and a condition.

    Raises
    ------
    InUse
        If other rows refer to the row.
    NotFound
        If the row does not exist.
    """
    await require_unused(tx, what, uses)
    table, condition = row
    with raise_on_violation(InUse(f"{what} is now in use; try again")):
        deleted = await tx.execute(table.delete().where(condition))
    if not deleted.rowcount:
        raise NotFound(f"{what} does not exist")


def insert_ignoring(tx: AsyncConnection, table: sa.Table) -> Any:
    """Return an INSERT that skips existing rows, on either database."""
    if tx.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


async def update_version(
    tx: AsyncConnection,
    table: sa.Table,
    key: str,
    version: int,
    changes: Mapping[str, Any],
    *,
    key_column: sa.Column[Any] | None = None,
) -> None:
    """Change the row with ``key`` in ``key_column`` (default: ``id``), if its version is still
    ``version``, and increment the version.

    Do nothing if the row no longer exists.

    Raises
    ------
    Conflict
        If the row has another version, because of a concurrent change.
    """
    is_key = (table.c.id if key_column is None else key_column) == key
    changed = await tx.execute(
        sa.update(table)
        .where(is_key, table.c.version == version)
        .values({**changes, "version": version + 1})
    )
    if changed.rowcount:
        return
    current = await tx.scalar(sa.select(table.c.version).where(is_key))
    if current is not None:
        raise Conflict(
            "another user has changed this object since you read it; read it again and repeat "
            "your change",
            version=current,
        )


async def insert_new(tx: AsyncConnection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row; return False if a row with the same key exists.

    The INSERT returns the row, because PostgreSQL does not report the number of inserted rows.
    """
    key = next(iter(table.primary_key.columns))
    added = await tx.execute(insert_ignoring(tx, table).values(values).returning(key))
    return added.first() is not None
