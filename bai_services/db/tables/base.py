"""Metadata, naming of constraints, and column types of the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from bai_services.core.resources import Caps, ResourceSlots

# Naming convention of constraints; a migration can drop a constraint only by its name.
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A time with a zone, stored as naive UTC, which both databases sort identically."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Hundredths(TypeDecorator[Decimal]):
    """A decimal number with two decimal places, stored as an integer, which is exact."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> int | None:
        return None if value is None else int(Decimal(value) * 100)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> Decimal | None:
        return None if value is None else Decimal(value) / 100


class Slots(TypeDecorator[ResourceSlots]):
    """A map of slot to integer amount, as JSON."""

    impl = sa.JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> dict[str, int] | None:
        return None if value is None else dict(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> ResourceSlots | None:
        return None if value is None else ResourceSlots(value)


class CapSlots(Slots):
    """A map of slot to limit, as JSON; unlike ``Slots``, it stores a limit of 0."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Caps | None:
        return None if value is None else Caps(value)


def identity() -> sa.Column[str]:
    """A primary key that the caller provides, usually a UUID as text."""
    return sa.Column("id", sa.String(64), primary_key=True)


def created_at() -> sa.Column[datetime]:
    return sa.Column("created_at", UtcDateTime, nullable=False)


def changed_by_role() -> sa.Column[str]:
    """Role of the user who created or last changed an object that administrators share."""
    return sa.Column("changed_by_role", sa.String(16), nullable=False, server_default="admin")


def version() -> sa.Column[int]:
    """The number of the row's version; each update increments it (``integrity.update_version``)."""
    return sa.Column("version", sa.Integer, nullable=False, default=1, server_default="1")
