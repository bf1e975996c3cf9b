"""Budgets of projects: the amount for a period, and the action when it is spent.

The spent amount is compared with the amount of the budget. Usage is charged as time passes, not in
advance. With the mode ``block``, no session of the project starts after the whole amount is spent.
Running sessions continue, so a project can spend more than its budget; ``stop_after_minutes``
limits how long they continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

MAX_AMOUNT = 10**12
AMOUNT_DECIMALS = 2
MAX_PERCENTS = 10
DEFAULT_PERCENTS = (80, 100)
MAX_STOP_MINUTES = 7 * 24 * 60


class Period(StrEnum):
    MONTH = "month"  # each calendar month in the time zone of the budget
    FIXED = "fixed"  # once, from ``starts_at`` to ``ends_at``


class Mode(StrEnum):
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectBudget:
    """A budget as shown to a caller.

    ``spent`` is the cost in the current period until ``spent_at``; None: not computed yet.
    ``period_start`` and ``period_end`` are the current period. ``blocked_at``: when the project was
    blocked from starting sessions; None: not blocked. ``stops_at``: when its running sessions are
    stopped; None: never. ``changed_by_role``: role of the user who set or last changed the budget.
    """

    project_id: str
    project: str
    domain: str
    created_at: datetime
    version: int
    amount: Decimal
    currency: str
    mode: Mode
    warn_percents: Sequence[int]
    period: Period
    starts_at: datetime | None
    ends_at: datetime | None
    time_zone: str
    stop_after_minutes: int | None
    period_start: datetime
    period_end: datetime
    spent: float | None
    spent_percent: int | None
    left: float | None
    spent_at: datetime | None
    blocked_at: datetime | None
    stops_at: datetime | None
    changed_by_role: str


@dataclass(frozen=True, slots=True)
class BudgetEvent:
    """A reached percentage of a project's budget; ``is_blocked``: no session may start."""

    at: datetime
    project_id: str
    project: str
    domain: str
    percent: int
    spent: float
    amount: float
    currency: str
    is_blocked: bool


def month_of(at: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the start and the end of the calendar month that contains a time."""
    first = at.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return first.astimezone(UTC), after.astimezone(UTC)


def reached_percent(percents: Iterable[int], spent: float, amount: Decimal) -> int:
    """Return the highest percentage in ``percents`` that is reached; 0 if none is reached."""
    reached = spent_percent(spent, amount)
    return max((percent for percent in percents if percent <= reached), default=0)


def is_blocked(mode: Mode, spent: float, amount: Decimal) -> bool:
    """Return whether the project may not start sessions."""
    return mode is Mode.BLOCK and Decimal(spent) >= amount


def left_of(amount: Decimal, spent: float) -> float:
    """Return the rest of a budget with two decimal places; negative if more was spent."""
    # ``+ 0.0``, because a rounded number can be -0.0.
    return round(float(amount) - spent, 2) + 0.0


def spent_percent(spent: float, amount: Decimal) -> int:
    """Return the spent part in percent, rounded down; 100 for a budget of 0.

    Independent of rounding errors, the result is at least 100 if and only if the amount is spent.
    """
    if not amount:
        return 100
    percent = int(100 * Decimal(spent) / amount)
    return max(percent, 100) if Decimal(spent) >= amount else min(percent, 99)
