"""Explain why a session is pending, its estimated start and how to start it sooner."""

from __future__ import annotations

from functools import partial
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import NotFound
from bai_services.core.scheduling.queue import Certainty, Estimate, Explanation
from bai_services.core.scheduling.queue.why import Choices, Explainer
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.rows import SessionRow

from ..sessions.sessions import Sessions
from .scheduler import Scheduler

Row = dict[str, Any]


class StartExplanations:
    """Explains pending sessions from the scheduler's queue or, without a queue, stored reasons."""

    def __init__(self, sessions: Sessions, scheduler: Scheduler, store: RequestStore) -> None:
        self._sessions = sessions
        self._scheduler = scheduler
        self._store = store

    async def get(self, caller: Caller, key: str) -> Row:
        """Return all checks of a session, its position, estimated start and suggestions."""
        row = await self._sessions.find_visible(caller, key)
        if row.status is not Status.PENDING:
            return _to_json(row, None)
        choices = await start_choices(self._store, row)
        why = await self._scheduler.query(partial(_explain, row.id, choices))
        return _to_json(row, why)


async def start_choices(store: RequestStore, row: SessionRow) -> Choices:
    """Return the resource groups and presets that the owner of a session could request instead."""
    try:
        owner = await store.owner(user_id=row.owner_id)
    except NotFound:
        return Choices()
    projects = await store.projects_of(row.owner_id)
    project = next((p for p in projects if p.id == row.project_id), None)
    if project is None:
        return Choices()
    offer = await store.offer(owner, project, row.access_key)
    return Choices(
        [g.name for g in offer.groups if row.type in g.allowed_session_types],
        {p.name: p.slots for p in offer.presets if p.resource_group in ("", row.resource_group)},
    )


def _explain(session_id: str, choices: Choices, explainer: Explainer) -> Explanation | None:
    return explainer.explain(session_id, choices)


def _to_json(row: SessionRow, why: Explanation | None) -> Row:
    """Return the explanation; without ``why``, the stored reasons of a pending session."""
    is_pending = row.status is Status.PENDING
    response = {
        "session_id": row.id,
        "name": row.name,
        "status": row.status,
        "resource_group": row.resource_group,
        "priority": row.priority,
        **explanation_json(why),
    }
    return response if why or not is_pending else {**response, "checks": row.reasons}


def explanation_json(why: Explanation | None) -> Row:
    """Return an explanation as a JSON object; for None, the same object with empty values."""
    if why is None:
        return {
            "is_complete": False,
            "position": None,
            "ahead": None,
            "checks": [],
            "estimate": {"starts_at": None, "certainty": Certainty.UNKNOWN},
            "sooner": [],
        }
    return {
        "is_complete": True,
        "position": why.position,
        "ahead": why.ahead,
        "checks": list(why.checks),
        "estimate": estimate_json(why.estimate),
        "sooner": [
            {"kind": s.kind, "message": s.message, "facts": dict(s.facts)} for s in why.suggestions
        ],
    }


def estimate_json(estimate: Estimate) -> Row:
    at = estimate.starts_at
    return {
        "starts_at": None if at is None else at.isoformat(),
        "certainty": str(estimate.certainty),
    }
