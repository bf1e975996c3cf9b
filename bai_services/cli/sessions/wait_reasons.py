"""Why a session waits, in a few words: position, reason, remedies."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from bai_services.core.sessions.lifecycle import Status

from .. import units
from ..text import printable


def wait_parts(session: Mapping[str, Any]) -> list[str]:
    """Return the position or status of a session, then each reason why it does not run yet."""
    if session["status"] == Status.PENDING:
        group = f"in group {session['resource_group']}"
        position = session.get("queue_position")
        parts = [f"waiting {group}" if position is None else f"#{position} {group}"]
        parts += _reasons(session.get("reasons") or ())
    else:
        parts = [str(session["status"])]
    progress = session.get("progress") or {}
    stage = str(progress.get("message") or progress.get("stage") or "")
    if stage:
        percent = progress.get("percent")
        parts.append(stage if percent is None else f"{stage} {percent:.0f} %")
    return [printable(part) for part in parts if part]


def _reasons(reasons: Iterable[Mapping[str, Any]]) -> list[str]:
    return [_reason(reason) for reason in reasons if not reason.get("passed")]


def _reason(reason: Mapping[str, Any]) -> str:
    if shortages := reason.get("shortages"):
        needs = ", ".join(
            f"needs {one['slot']}={one['asked']}, most free on one agent: {one['available']}"
            for one in shortages
        )
        return needs if reason.get("possible", True) else f"{needs}, also when nothing runs there"
    return str(reason.get("message", ""))


def remedy_texts(remedies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what would let a session start sooner, as options of `bai session create`."""
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
    """Return when a waiting session is expected to start; empty when nothing is known."""
    when = units.moment((estimate or {}).get("starts_at"))
    if estimate is None or when is None:
        return ""
    return f"{units.relative(when)} ({estimate['certainty']})"
