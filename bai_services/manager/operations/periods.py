"""Changes of announcements and maintenances, which both have a period."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bai_services.core.operations.periods import check_period, require_not_past
from bai_services.core.record_fields import fields_of


def new_values(record: Any, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the columns to change in an announcement or maintenance.

    A field that is None is unchanged, except ``ends_at``, where None means no end.

    Raises
    ------
    InvalidRequest
        If the changed period would not be valid, or a new end is in the past.
    """
    values = {
        name: value for name, value in changes.items() if value is not None or name == "ends_at"
    }
    after = {**fields_of(record), **values}
    check_period(after["starts_at"], after["ends_at"])
    if after["ends_at"] != record.ends_at:
        require_not_past(after["ends_at"], now, "ends_at")
    return values
