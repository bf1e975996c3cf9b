"""Conditions that are checked periodically; a condition raises an event when it begins to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..coded_text import CodedText, TextTemplate
from ..wall_clock import has_elapsed
from .catalogue import EventName
from .events import Audience, Event

# A condition can raise another event only after it has not held for this time. Otherwise, a value
# that fluctuates around a limit would raise many events.
REARM_AFTER = timedelta(minutes=10)
# The same time for warnings before the end of a session. It differs because users can extend
# sessions.
REARM_WARNING_AFTER = timedelta(minutes=1)

PENDING_LONG = timedelta(hours=1)
QUOTA_PERCENT = 90
FREE_DISK_PERCENT = 5
# Consecutive failed replicas after which an endpoint is reported.
FAILED_REPLICAS = 3
# Number of failed attempts to deliver one mail after which mail delivery counts as failing.
FAILED_MAIL_ATTEMPTS = 3
# Warnings before a policy's time limit ends a session, as (time, divisor): the lead time is the
# smaller of ``time`` and limit / divisor.
_POLICY_WARNINGS = ((timedelta(minutes=30), 2), (timedelta(minutes=5), 10))


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds now; ``key`` identifies it while it holds."""

    key: str
    name: EventName
    audience: Audience
    text: CodedText
    link: str = ""
    domain: str | None = None

    @property
    def rearm_after(self) -> timedelta:
        stops = (EventName.SESSION_STOPS_SOON, EventName.SESSION_STOPS_NOW)
        return REARM_WARNING_AFTER if self.name in stops else REARM_AFTER

    def event(self, at: datetime) -> Event:
        """Return the event for the condition, which begins to hold at ``at``."""
        key = f"{self.key}@{at.isoformat(timespec='milliseconds')}"
        return Event(key, at, self.name, self.audience, self.text, self.link, self.domain)


@dataclass(frozen=True, slots=True)
class ConditionChanges:
    """Changes of conditions. ``begun``: conditions that raise an event. ``over``: keys of ended
    conditions.
    """

    begun: tuple[Condition, ...]
    over: tuple[str, ...]


def changes_of(
    found: Iterable[Condition],
    stored: Mapping[str, tuple[datetime, timedelta]],
    now: datetime,
) -> ConditionChanges:
    """Compare the conditions that hold now with the stored conditions.

    ``stored`` maps the key of a condition to two values: the time of its last observation, and the
    duration without an observation after which the condition has ended.
    """
    by_key = {condition.key: condition for condition in found}
    begun = tuple(each for key, each in by_key.items() if key not in stored)
    over = tuple(
        key
        for key, (seen_at, rearm_after) in stored.items()
        if key not in by_key and has_elapsed(seen_at, rearm_after, now)
    )
    return ConditionChanges(begun, over)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The time at which a rule stops a running session, unless the session is used or extended.

    ``limit_seconds``: the time limit, if the rule belongs to a policy. ``warnings_seconds``: lead
    times of the warnings, if the rule is an idle checker.
    """

    session_id: str
    name: str
    owner_id: str
    domain: str
    ends_at: datetime
    rule_id: str
    rule: CodedText
    limit_seconds: int = 0
    warnings_seconds: tuple[int, ...] = ()
    keep_alives_left: int | None = None


def warning_of(end: SessionEnd, now: datetime) -> EventName | None:
    """Return the stage of the warning that is due, or None; ``session-stops-now`` is the last
    stage.
    """
    left = (end.ends_at - now).total_seconds()
    times = end.warnings_seconds or _policy_warnings(end.limit_seconds)
    if not times or left > max(times):
        return None
    return EventName.SESSION_STOPS_NOW if left <= min(times) else EventName.SESSION_STOPS_SOON


def ending_conditions(ends: Iterable[SessionEnd], now: datetime) -> list[Condition]:
    """Return the due warnings: at most one per session, for its earliest end."""
    first: dict[str, SessionEnd] = {}
    for end in ends:
        known = first.get(end.session_id)
        if known is None or end.ends_at < known.ends_at:
            first[end.session_id] = end
    found = []
    for end in first.values():
        stage = warning_of(end, now)
        if stage is None:
            continue
        values: dict[str, str | int] = {
            "name": end.name,
            "ends_at": end.ends_at.isoformat(timespec="seconds"),
        }
        template = TextTemplate.NOTICE_SESSION_STOPS
        if end.keep_alives_left is not None:
            template = TextTemplate.NOTICE_SESSION_STOPS_KEEP_ALIVES
            values["left"] = end.keep_alives_left
        found.append(
            Condition(
                f"{stage}:{end.session_id}:{end.rule_id}",
                stage,
                Audience(user_id=end.owner_id),
                template.text(end.rule, **values),
                f"sessions/{end.session_id}",
                end.domain,
            )
        )
    return found


def _policy_warnings(limit_seconds: int) -> tuple[int, ...]:
    return tuple(
        min(int(before.total_seconds()), limit_seconds // part) for before, part in _POLICY_WARNINGS
    )
