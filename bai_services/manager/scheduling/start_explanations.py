"""Explain why a session is pending, when it will probably start and how it can start sooner."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from bai_services.core.accounts.roles import Caller
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import NotFound
from bai_services.core.record_fields import fields_of
from bai_services.core.scheduling.estimates.explainer import Choices, Explainer
from bai_services.core.scheduling.queue import Certainty, Estimate, Explanation
from bai_services.core.scheduling.queue.model import Suggestion, SuggestionKind
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.previews import (
    PendingExplanation,
    Remedy,
    StartEstimate,
    StartExplanation,
)
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.rows import SessionRow

from ..sessions.sessions import Sessions
from .overflow_targets import OverflowTargets
from .scheduler import Scheduler


class StartExplanations:
    """Explains pending sessions from the scheduler's queue.

    Without a queue, the explanation contains only the stored reasons.
    """

    def __init__(
        self,
        sessions: Sessions,
        scheduler: Scheduler,
        store: RequestStore,
        overflow: OverflowTargets,
    ) -> None:
        self._overflow = overflow
        self._sessions = sessions
        self._scheduler = scheduler
        self._store = store

    async def get(self, caller: Caller, key: str) -> PendingExplanation:
        """Return all checks of a pending session, its position, estimated start and suggestions.

        The explanation of a session that is not pending has none of these.
        """
        row = await self._sessions.find_visible(caller, key)
        if row.status is not Status.PENDING:
            return _explained(row, None)
        choices = await start_choices(self._store, row)
        why = await self._scheduler.query(partial(_explain, row.id, choices))
        if why is not None:
            suggestions = [await self._with_names(caller, row, one) for one in why.suggestions]
            why = replace(why, suggestions=tuple(suggestions))
        overflow = await self._overflow.of(row, choices)
        return replace(_explained(row, why), overflow=overflow)

    async def _with_names(self, caller: Caller, row: SessionRow, one: Suggestion) -> Suggestion:
        """Add the names of the running sessions of the same owner that use an exceeded quota."""
        if one.kind is not SuggestionKind.QUOTA:
            return one
        names = []
        for session_id in one.facts["first_ids"]:
            # Skip a session that was deleted or that the caller may not see.
            with suppress(NotFound):
                other = await self._sessions.find_visible(caller, session_id)
                if other.owner_id == row.owner_id:
                    names.append(other.name)
        if not names:
            return one
        text = TextTemplate.QUOTA_USERS.text(one.text, names=", ".join(names))
        return replace(one, text=text, facts={**one.facts, "first_names": names})


async def start_choices(store: RequestStore, row: SessionRow) -> Choices:
    """Return the groups and presets that the owner of a session could have requested for it."""
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


def _explained(row: SessionRow, why: Explanation | None) -> PendingExplanation:
    """Add facts of the session to its explanation; without ``why``, use the stored reasons."""
    explanation = start_explanation(why)
    if why is None and row.status is Status.PENDING:
        explanation = replace(explanation, checks=row.reasons)
    if why is not None:
        explanation = replace(explanation, estimate=start_estimate(why.estimate.announced()))
    return PendingExplanation(
        **fields_of(explanation),
        session_id=row.id,
        name=row.name,
        status=row.status,
        resource_group=row.resource_group,
        priority=row.priority,
    )


def start_explanation(why: Explanation | None) -> StartExplanation:
    """Convert the scheduler's explanation; for None, return an incomplete one without values."""
    if why is None:
        return StartExplanation(
            is_complete=False,
            position=None,
            ahead=None,
            checks=(),
            estimate=StartEstimate(starts_at=None, certainty=Certainty.UNKNOWN),
            sooner=(),
        )
    return StartExplanation(
        is_complete=True,
        position=why.position,
        ahead=why.ahead,
        checks=why.checks,
        estimate=start_estimate(why.estimate),
        sooner=[
            Remedy(kind=s.kind, message=str(s.text), coded=s.text, facts=s.facts)
            for s in why.suggestions
        ],
    )


def start_estimate(estimate: Estimate) -> StartEstimate:
    return StartEstimate(starts_at=estimate.starts_at, certainty=estimate.certainty)
