"""Restrictions of sessions to agents that are not under maintenance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..coded_text import CodedText, TextTemplate

# Designated agents of a request that may run nowhere; no agent has an empty id.
NO_AGENTS = ("",)


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A period in which sessions do not start on some agents of a resource group.

    ``agents`` None: all agents of the group. ``ends_at`` None: no end. With ``looks_ahead``, a
    session also does not start before the period if its maximum run time ends after the period
    begins.
    """

    starts_at: datetime
    ends_at: datetime | None
    reason: str
    agents: frozenset[str] | None = None
    looks_ahead: bool = True

    def withholds(self, now: datetime, max_run_seconds: int | None) -> bool:
        """Return whether a session with this maximum run time may not start now.

        None: no maximum. A session without a maximum may start before the period, even with
        ``looks_ahead``.
        """
        if self.ends_at is not None and max(now, self.starts_at) >= self.ends_at:
            return False
        if now >= self.starts_at:
            return True
        if not self.looks_ahead or max_run_seconds is None:
            return False
        # Subtract, because the end of a very long run time may be out of range.
        return timedelta(seconds=max_run_seconds) > self.starts_at - now


@dataclass(frozen=True, slots=True)
class Restriction:
    """The agents on which a session may start now, and why the others are excluded."""

    agents: tuple[str, ...]
    text: CodedText


def restriction(
    windows: Sequence[MaintenanceWindow],
    agents: Collection[str],
    now: datetime,
    max_run_seconds: int | None,
) -> Restriction | None:
    """Return the restriction of a session by maintenance, or None.

    ``agents`` are the agents of the resource group. The text describes the period that withholds
    the most agents.
    """
    largest: tuple[int, MaintenanceWindow] | None = None
    allowed = set(agents)
    for window in windows:
        if not window.withholds(now, max_run_seconds):
            continue
        withheld = set(agents) if window.agents is None else window.agents & set(agents)
        allowed -= withheld
        if withheld and (largest is None or len(withheld) > largest[0]):
            largest = len(withheld), window
    if largest is None:
        return None
    return Restriction(tuple(sorted(allowed)), _text(largest[1], now, max_run_seconds))


def may_interrupt(
    windows: Sequence[MaintenanceWindow],
    agents: Collection[str],
    now: datetime,
    max_run_seconds: int | None,
) -> CodedText | None:
    """Return a text about the first planned period that begins on one of ``agents`` while a session
    may still run there; None if there is none.

    Sessions with a maximum run time are not concerned: they do not start if they could run into the
    period.
    """
    if max_run_seconds is not None:
        return None
    ahead = [
        window
        for window in windows
        if window.looks_ahead
        and window.starts_at > now
        and (window.agents is None or not window.agents.isdisjoint(agents))
    ]
    first = min(ahead, key=lambda window: window.starts_at, default=None)
    if first is None:
        return None
    return TextTemplate.MAINTENANCE_MAY_INTERRUPT.text(
        starts_at=first.starts_at.isoformat(), reason=first.reason
    )


def _text(window: MaintenanceWindow, now: datetime, max_run_seconds: int | None) -> CodedText:
    if now < window.starts_at:
        return TextTemplate.MAINTENANCE_AHEAD.text(
            starts_at=window.starts_at.isoformat(),
            maximum_seconds=max_run_seconds or 0,
            reason=window.reason,
        )
    if window.ends_at is None:
        return TextTemplate.MAINTENANCE.text(reason=window.reason)
    return TextTemplate.MAINTENANCE_UNTIL.text(
        ends_at=window.ends_at.isoformat(), reason=window.reason
    )
