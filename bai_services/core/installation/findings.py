"""Results of checks: of an installation, and of the machines on which agents run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

WARN_DAYS = 21
MAX_FINDINGS = 200
MAX_TEXT = 500


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; ``remedy`` is empty if the level is ``ok``."""

    check: str
    level: Level
    message: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, message, remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, message, remedy)


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.ERROR, Level.WARNING) if level in levels), Level.OK)


def validity(
    check: str, begin: datetime, end: datetime, now: datetime, what: str = "it"
) -> Finding:
    """Check that a certificate is valid at ``now`` and for another ``WARN_DAYS`` days; ``what``
    names it in the message.
    """
    if now < begin:
        return error(
            check,
            f"{what} is not valid before {begin:%Y-%m-%d %H:%M} UTC",
            "check the clock, or use another certificate",
        )
    if end <= now:
        return error(check, f"{what} expired on {end:%Y-%m-%d}", "renew the certificate")
    if end - now < timedelta(days=WARN_DAYS):
        return warning(check, f"{what} expires on {end:%Y-%m-%d}", "renew the certificate")
    return ok(check, f"{what} is valid until {end:%Y-%m-%d}")


def findings_from_json(values: object) -> list[Finding]:
    """Return the findings that an agent has reported, limited in number and length.

    An entry that cannot be parsed is returned as an error.
    """
    if not isinstance(values, list):
        return [error("agent", "the agent reported no findings", "upgrade bai-hub on this node")]
    return [_from_json(value) for value in values[:MAX_FINDINGS]]


def _from_json(value: object) -> Finding:
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    try:
        level = Level(str(fields["level"]))
        texts = [str(fields[name])[:MAX_TEXT] for name in ("check", "message", "remedy")]
    except (KeyError, ValueError):
        return error("agent", "a finding cannot be read", "upgrade bai-hub on this node")
    return Finding(texts[0], level, texts[1], texts[2])
