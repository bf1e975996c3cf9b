"""Idle checkers and their bindings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from ...coded_text import CodedText, TextTemplate
from ...duration_text import format_duration
from ...errors import InvalidRequest
from ...resources import family_name
from ...user_input import shown
from ..lifecycle import SessionType
from ..usage_history import COARSE, FINE, Resolution

MIN_SECONDS = 60
MAX_SECONDS = 10 * 365 * 86400
# Longest window of a utilization checker: 288 coarse samples.
MAX_WINDOW_SECONDS = 86400
MAX_THRESHOLDS = 20
MAX_WARNINGS = 5
MAX_KEEP_ALIVES = 1000

CPU_UTIL, MEM, NET, IO = "cpu_util", "mem", "net", "io"
# Metrics of every session; the others are ``<family>_util`` and ``<family>_mem``.
COMMON_METRICS = (CPU_UTIL, MEM, NET, IO)
# Metrics in bytes per second; the others are in percent.
RATES = frozenset({NET, IO})
UTIL_SUFFIX, MEM_SUFFIX = "_util", "_mem"
_BINARY_STEP = 1024
_METRIC_NAMES = {
    CPU_UTIL: TextTemplate.CPU_UTILIZATION,
    MEM: TextTemplate.MEMORY_USE,
    NET: TextTemplate.NETWORK_TRAFFIC,
    IO: TextTemplate.DISK_ACCESS,
}
_DEVICE_METRIC = re.compile(r"[a-z][a-z0-9-]{0,31}(?:_util|_mem)")


class CheckerType(StrEnum):
    NETWORK = "network"
    LIFETIME = "session-lifetime"
    UTILIZATION = "utilization"


class Operator(StrEnum):
    AND = "and"  # idle if every metric is below its threshold
    OR = "or"  # idle if any metric is below its threshold


class CheckStatus(StrEnum):
    NOT_CHECKED = "not-checked"  # activity is unknown, or the grace period is not over
    ACTIVE = "active"
    IDLE = "idle"  # in the countdown, or stopped only if sessions wait for resources
    EXCLUDED = "excluded"  # excluded by a user


class BindingScope(StrEnum):
    DOMAIN = "domain"
    PROJECT = "project"
    RESOURCE_GROUP = "resource-group"
    USER = "user"
    KEYPAIR_POLICY = "keypair-policy"


@dataclass(frozen=True, slots=True)
class CheckerSettings:
    """Settings of a checker, with the field names of the REST API.

    ``max_seconds`` is the maximum inactivity, the maximum lifetime, or the length of the window.
    The following fields apply to utilization checkers only. ``thresholds``, ``operator`` and
    ``idle_percent``: a session is idle if at least ``idle_percent`` of the samples in the window
    are idle. ``min_seconds_under_pressure`` is the shortest window while other sessions wait for
    the same resources; 0: the window does not shrink. ``only_under_pressure``: a session is stopped
    only while other sessions wait for the same resources.
    """

    max_seconds: int
    session_types: tuple[SessionType, ...] = (SessionType.INTERACTIVE,)
    initial_grace_seconds: int = 0
    thresholds: Mapping[str, int] = field(default_factory=dict)
    operator: Operator = Operator.AND
    idle_percent: int = 90
    min_seconds_under_pressure: int = 0
    only_under_pressure: bool = False
    warnings_seconds: tuple[int, ...] = (600, 120)
    max_keep_alives: int = 3
    allows_exclusion: bool = False

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> CheckerSettings:
        """Return the settings from a JSON object of ``as_json``."""
        values = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        for name, convert in _CONVERTERS.items():
            if name in values:
                values[name] = convert(values[name])
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **values,
            "session_types": list(self.session_types),
            "thresholds": dict(self.thresholds),
            "warnings_seconds": list(self.warnings_seconds),
        }

    @property
    def resolution(self) -> Resolution:
        """The resolution of the samples that a utilization checker uses."""
        return FINE if timedelta(seconds=self.max_seconds) <= FINE.kept_for else COARSE

    @property
    def first_warning_seconds(self) -> int:
        """The time between the first warning and the end."""
        return max(self.warnings_seconds, default=0)

    @property
    def final_warning_seconds(self) -> int:
        """The minimum time between the final warning and the end."""
        return min(self.warnings_seconds, default=0)


_CONVERTERS: Mapping[str, Any] = {
    "session_types": lambda names: tuple(SessionType(name) for name in names),
    "operator": Operator,
    "warnings_seconds": tuple,
}


@dataclass(frozen=True, slots=True)
class Checker:
    id: str
    name: str
    type: CheckerType
    settings: CheckerSettings

    def applies_to(self, kind: SessionType) -> bool:
        """Return whether sessions of a type are judged; network checkers skip batch sessions."""
        if self.type is CheckerType.NETWORK and kind is SessionType.BATCH:
            return False
        return kind in self.settings.session_types


@dataclass(frozen=True, slots=True)
class AppliedChecker:
    """A checker that is bound to a scope of a session.

    ``is_dry_run``: all bindings that apply to the session are dry runs, so the checker does not
    stop it. ``is_excluded`` and ``kept_alive_at`` were set by a user of the session.
    ``effective_at``: since when the checker has these settings and applies to the scope; None: for
    a long time.
    """

    checker: Checker
    is_dry_run: bool
    is_excluded: bool = False
    kept_alive_at: datetime | None = None
    effective_at: datetime | None = None


def check_settings(kind: CheckerType, settings: CheckerSettings) -> CheckerSettings:
    """Return the settings; raise ``InvalidRequest`` if a value is not valid for this type."""
    most = MAX_WINDOW_SECONDS if kind is CheckerType.UTILIZATION else MAX_SECONDS
    _check_range("max_seconds", settings.max_seconds, MIN_SECONDS, most)
    _check_range("initial_grace_seconds", settings.initial_grace_seconds, 0, MAX_SECONDS)
    _check_range("idle_percent", settings.idle_percent, 1, 100)
    _check_range("max_keep_alives", settings.max_keep_alives, 0, MAX_KEEP_ALIVES)
    if not settings.session_types:
        raise InvalidRequest("session_types must not be empty", field="session_types")
    if kind is CheckerType.UTILIZATION:
        _check_thresholds(settings.thresholds)
    elif settings.thresholds:
        raise InvalidRequest(f"a checker of type {kind} has no thresholds", field="thresholds")
    if kind is CheckerType.NETWORK and set(settings.session_types) == {SessionType.BATCH}:
        raise InvalidRequest(
            "a checker of type network does not judge batch sessions", field="session_types"
        )
    _check_pressure(kind, settings)
    _check_warnings(settings.warnings_seconds)
    return settings


def fitting_warnings(warnings: Sequence[int], max_seconds: int) -> tuple[int, ...]:
    """Return the warnings that are shorter than the window; if there is none, half the window."""
    return tuple(each for each in warnings if each < max_seconds) or (max_seconds // 2,)


def check_warning_times(settings: CheckerSettings) -> None:
    """Raise ``InvalidRequest`` if a warning would be sent as soon as a session becomes idle."""
    longest = max(settings.warnings_seconds, default=0)
    if longest >= settings.max_seconds:
        raise InvalidRequest(
            f"a warning {format_duration(longest)} before the end must be shorter than max_seconds "
            f"({format_duration(settings.max_seconds)}): set shorter warnings_seconds, or a longer "
            "max_seconds",
            field="warnings_seconds",
        )


def metric_family(metric: str) -> str | None:
    """Return the device family of a metric; None for a metric that every session has."""
    if metric in COMMON_METRICS:
        return None
    return metric.rpartition("_")[0]


def metric_value_text(metric: str, value: float) -> str:
    """Return a value with its unit: ``3.4%``, ``1.5 KiB/s``."""
    if metric not in RATES:
        return f"{_short(value)}%"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _BINARY_STEP or unit == "GiB":
            break
        value /= _BINARY_STEP
    return f"{_short(value) if unit != 'B' else round(value)} {unit}/s"


def metric_name(metric: str) -> CodedText:
    """Return the name of a metric for users."""
    family = metric_family(metric)
    if family is None:
        return _METRIC_NAMES[metric].text()
    if metric.endswith(UTIL_SUFFIX):
        return TextTemplate.DEVICE_UTILIZATION.text(name=family_name(family))
    return TextTemplate.DEVICE_MEMORY.text(name=family_name(family))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _check_thresholds(thresholds: Mapping[str, int]) -> None:
    if not thresholds:
        raise InvalidRequest("a utilization checker needs thresholds", field="thresholds")
    if len(thresholds) > MAX_THRESHOLDS:
        raise InvalidRequest(f"at most {MAX_THRESHOLDS} thresholds", field="thresholds")
    for metric, limit in thresholds.items():
        if metric not in COMMON_METRICS and not _DEVICE_METRIC.fullmatch(metric):
            raise InvalidRequest(
                f"{shown(metric)!r} is not a metric: use {', '.join(COMMON_METRICS)}, "
                "FAMILY_util or FAMILY_mem",
                field="thresholds",
            )
        _check_range(f"thresholds.{metric}", limit, 1, 2**50 if metric in RATES else 100)


def _check_pressure(kind: CheckerType, settings: CheckerSettings) -> None:
    floor = settings.min_seconds_under_pressure
    if kind is not CheckerType.UTILIZATION and (floor or settings.only_under_pressure):
        raise InvalidRequest(
            f"a checker of type {kind} does not depend on waiting sessions",
            field="min_seconds_under_pressure" if floor else "only_under_pressure",
        )
    if floor:
        _check_range("min_seconds_under_pressure", floor, MIN_SECONDS, settings.max_seconds)


def _check_warnings(warnings: Sequence[int]) -> None:
    if len(warnings) > MAX_WARNINGS:
        raise InvalidRequest(f"at most {MAX_WARNINGS} warnings", field="warnings_seconds")
    for seconds in warnings:
        _check_range("warnings_seconds", seconds, 0, MAX_WINDOW_SECONDS)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(
            f"{name}={value} must be from {least} to {most}", field=name.partition(".")[0]
        )
