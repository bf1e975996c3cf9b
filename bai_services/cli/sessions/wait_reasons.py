"""Short texts about a waiting session: position, reasons, progress, remedies, estimated start."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from bai_services.core.sessions.lifecycle import Status

from .. import units
from ..text import printable


def position_and_reasons(session: Mapping[str, Any]) -> list[str]:
    """Return a session's queue position or status, why it is pending, and its progress."""
    if session["status"] == Status.PENDING:
        parts = [position_text(session.get("queue_position"), session["resource_group"])]
        parts += _reasons(session.get("reasons") or ())
    else:
        parts = [str(session["status"])]
    progress = session.get("progress") or {}
    stage = str(progress.get("message") or progress.get("stage") or "")
    if stage:
        percent = progress.get("percent")
        parts.append(stage if percent is None else f"{stage} {percent:.0f} %")
    return [printable(part) for part in parts if part]


def position_text(position: int | None, group: str) -> str:
    """Return the position of a pending session among the sessions of all users in its group."""
    where = f"in resource group {group}"
    return f"pending {where}" if not position else f"position {position} {where} (all users)"


def quota_note(session: Mapping[str, Any]) -> str:
    """Return what will end the block of a session that is blocked by a quota; empty for any other
    session.
    """
    failed = [one for one in session.get("reasons") or () if not one.get("passed")]
    if session["status"] != Status.PENDING or "policy" not in [one.get("check") for one in failed]:
        return ""
    return "blocked by a quota: starts after the quota is raised or sessions that use it end"


def _reasons(reasons: Iterable[Mapping[str, Any]]) -> list[str]:
    return [_reason(reason) for reason in reasons if not reason.get("passed")]


def _reason(reason: Mapping[str, Any]) -> str:
    if shortages := reason.get("shortages"):
        needs = ", ".join(
            f"needs {one['slot']}={one['asked']}, at most {one['available']} free on one agent"
            for one in shortages
        )
        return needs if reason.get("possible", True) else f"{needs}, even if no session runs"
    return units.with_local_times(str(reason.get("message", "")))


def remedy_texts(remedies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the options of `bai session create` with which the session would start sooner."""
    texts = []
    for remedy in remedies:
        facts = remedy.get("facts") or {}
        if slots := facts.get("slots") if remedy["kind"] == "smaller" else None:
            texts.append(" ".join(f"-r {slot}={amount}" for slot, amount in slots.items()))
        elif preset := facts.get("preset"):
            texts.append(f"--preset {shlex.quote(preset)}")
        elif group := facts.get("resource_group"):
            texts.append(f"--resource-group {shlex.quote(group)}")
    return [printable(text) for text in texts]


def starts_text(estimate: Mapping[str, Any] | None) -> str:
    """Return the estimated start of a pending session and its certainty; empty if unknown."""
    when = units.parse_time((estimate or {}).get("starts_at"))
    if estimate is None or when is None:
        return ""
    return f"{units.relative(when)} ({estimate['certainty']})"
