"""Progress events for the Hub's "spawn pending" page, computed from the manager's session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bai_services.core.coded_text import CodedText
from bai_services.core.sessions.lifecycle import Status
from bai_services.i18n.catalogue import Translator

PERCENT_AT_STATUS = {
    Status.PENDING: 5,
    Status.SCHEDULED: 20,
    Status.PREPARING: 25,
    Status.PREPARED: 70,
    Status.RUNNING: 95,
}
# Percentage points that a complete preparation adds.
PREPARING_SPAN = 40


def progress_event(session: Mapping[str, Any], translate: Translator) -> dict[str, Any]:
    """Return the progress event for the current state of a session."""
    status = session["status"]
    percent = PERCENT_AT_STATUS.get(status, 10)
    if status == Status.PENDING:
        return {"progress": percent, "message": _pending_message(session, translate)}
    if status == Status.PREPARING:
        stage = session.get("progress") or {}
        done = float(stage.get("percent") or 0)
        percent += round(PREPARING_SPAN * min(max(done, 0), 100) / 100)
        message = str(stage.get("message") or translate("spawn.preparing"))
        if done:
            message = f"{message} ({done:.0f} %)"
        return {"progress": percent, "message": message}
    key = "spawn.starting" if status == Status.PREPARED else f"spawn.{str(status).lower()}"
    return {"progress": percent, "message": translate(key)}


def _pending_message(session: Mapping[str, Any], translate: Translator) -> str:
    text = translate("spawn.pending")
    position = session.get("queue_position")
    if position:
        text = translate("spawn.pending-at", position=position)
    failed = [r for r in session.get("reasons") or () if not r.get("passed")]
    if failed:
        text += " " + "; ".join(_reason_text(translate, r) for r in failed)
    return text


def _reason_text(translate: Translator, reason: Mapping[str, Any]) -> str:
    """Return a reason in the user's language.

    The result is the English message if the catalogue has no text for the code or a value is
    missing: the manager may be newer.
    """
    try:
        return CodedText.from_json(reason["coded"]).format(translate.area("reasons"))
    except KeyError:
        return str(reason["message"])
