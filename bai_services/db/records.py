"""Convert rows to records: frozen dataclasses with a field of the same name for each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

T = TypeVar("T")


def records(make: Callable[..., T], result: sa.CursorResult[Any]) -> list[T]:
    """Return ``make(**columns)`` for each row."""
    return [make(**row) for row in result.mappings()]


def first_record(make: Callable[..., T], result: sa.CursorResult[Any]) -> T | None:
    """Return ``make(**columns)`` for the only row; None if the result is empty."""
    row = result.mappings().one_or_none()
    return None if row is None else make(**row)
