"""Idle checkers, bindings, results and decisions, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleChecker:
    """A checker with its settings; see ``CheckerSettings``."""

    id: str
    created_at: datetime
    version: int
    name: str
    description: str
    type: str
    max_seconds: int
    session_types: Sequence[str]
    initial_grace_seconds: int
    thresholds: Mapping[str, int]
    operator: str
    idle_percent: int
    min_seconds_under_pressure: int
    only_under_pressure: bool
    warnings_seconds: Sequence[int]
    max_keep_alives: int
    allows_exclusion: bool
    bindings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCheckerBinding:
    """The binding of a checker to a scope; the checker judges the sessions of the scope.

    ``scope_name`` is the name of a user or project (``DOMAIN/NAME``), else equal to ``scope_id``.
    """

    id: str
    created_at: datetime
    checker_id: str
    checker: str
    scope: str
    scope_id: str
    scope_name: str
    domain: str | None
    is_enabled: bool
    is_dry_run: bool
    changed_by_role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleDecision:
    """A session that a checker stopped, or would have stopped (``is_dry_run``).

    ``reason``: text of the rule with its limits and the measured values; ``coded``: the same text
    as a code with values.
    """

    id: int
    at: datetime
    checker_id: str
    checker: str
    session_id: str
    session: str
    owner: str
    domain: str
    is_dry_run: bool
    reason: str
    coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdleCheck:
    """The last result of one checker for a session.

    ``ends_at``: when the checker stops the session if it stays idle; None: the countdown has not
    begun. ``warning_seconds``: the latest due warning, in seconds before the end; None: no warning
    is due. ``earliest_end_at`` and ``earliest_warning_at``: the end and the first warning if the
    session is not used from now on; None: unknown, or there is no warning. ``judged_from``: when
    the checker first judges the session after its start or its last keep-alive
    (``kept_alive_at``); None: it already does. ``reason``: text of the rule, with the measured
    values if the session is idle.
    """

    checker_id: str
    checker: str
    type: str
    status: str
    is_dry_run: bool
    ends_at: datetime | None
    warning_seconds: int | None
    earliest_end_at: datetime | None
    earliest_warning_at: datetime | None
    judged_from: datetime | None
    kept_alive_at: datetime | None
    reason: str
    coded: Mapping[str, Any] | None
    keep_alives_left: int
    allows_exclusion: bool
    is_excluded: bool


@dataclass(frozen=True, slots=True)
class SessionEndRule:
    """The strictest limit of a running session: the earliest end, and a description of it."""

    ends_at: datetime
    reason: str
    coded: Mapping[str, Any]
