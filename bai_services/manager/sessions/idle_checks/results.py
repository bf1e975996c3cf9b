"""The results of idle checkers as the REST API returns them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from bai_services.core.coded_text import CodedText
from bai_services.core.resources import family_of
from bai_services.core.sessions.idle_checks.checkers import CheckerType, CheckStatus
from bai_services.core.sessions.idle_checks.judging import judged_from, limit_text
from bai_services.core.sessions.idle_checks.records import SessionIdleCheck
from bai_services.db.sessions.idle_checks.results import ViewedCheck


def idle_checks_of(
    checks: Iterable[ViewedCheck],
    slots: Iterable[str],
    started_at: datetime | None,
    now: datetime,
) -> list[SessionIdleCheck]:
    """Return the results of the checkers of a session that has requested these slots."""
    families = {family for slot in slots if (family := family_of(slot)) is not None}
    return [_check(check, families, started_at, now) for check in checks]


def check_warnings(checks: Sequence[SessionIdleCheck]) -> list[str]:
    """Return a warning for each checker that soon stops the session."""
    return [
        f"{check.reason}; the session is stopped at {check.ends_at.isoformat(timespec='seconds')}"
        + ("" if check.type is CheckerType.LIFETIME else " unless it is used")
        for check in checks
        if check.ends_at is not None and check.warning_seconds is not None and not check.is_dry_run
    ]


def _check(
    viewed: ViewedCheck, families: Collection[str], started_at: datetime | None, now: datetime
) -> SessionIdleCheck:
    stored, checker = viewed.stored, viewed.checker
    settings = checker.settings
    if stored.status == CheckStatus.IDLE and stored.rule is not None:
        rule = CodedText.from_json(stored.rule)
    else:
        rule = limit_text(checker, families)
    end = stored.ends_at or stored.expected_ends_at
    warning = timedelta(seconds=settings.first_warning_seconds)
    judged = started_at and judged_from(checker, started_at, stored.kept_alive_at)
    return SessionIdleCheck(
        checker_id=checker.id,
        checker=checker.name,
        type=checker.type,
        status=stored.status,
        is_dry_run=stored.is_dry_run,
        ends_at=stored.ends_at,
        warning_seconds=_warning(stored.ends_at, settings.warnings_seconds, now),
        earliest_end_at=end,
        earliest_warning_at=end - warning if end is not None and warning else None,
        judged_from=judged if judged is not None and judged > now else None,
        kept_alive_at=stored.kept_alive_at,
        reason=str(rule),
        coded=rule.as_json(),
        keep_alives_left=max(settings.max_keep_alives - stored.keep_alives, 0),
        allows_exclusion=settings.allows_exclusion,
        is_excluded=stored.is_excluded,
    )


def _warning(
    ends_at: datetime | None, warnings_seconds: Iterable[int], now: datetime
) -> int | None:
    if ends_at is None:
        return None
    left = (ends_at - now).total_seconds()
    return min((seconds for seconds in warnings_seconds if left <= seconds), default=None)
