"""Read the fields of a record (a frozen dataclass), for example to copy them to another record."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance; unlike ``asdict``, values are not copied."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
