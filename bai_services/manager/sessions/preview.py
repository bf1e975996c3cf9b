"""Preview a session: check its request, and compute its start and its resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import AlreadyExists, BaiError, InUse
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import MEM, format_amount, parse_amount, percent_of
from bai_services.core.scheduling.caps import SESSIONS, Violation, shown_fields
from bai_services.core.scheduling.estimates.preview import preview
from bai_services.core.sessions.previews import (
    CapUse,
    FieldProblem,
    PreviewedSession,
    SessionPreview,
    StartExplanation,
)
from bai_services.core.sessions.spec import SessionSpec
from bai_services.core.usage.budgets import left_of
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.session_insert import NewSession
from bai_services.db.sessions.store import SessionStore
from bai_services.db.usage.budgets import BudgetStore
from bai_services.db.usage.prices import UsagePriceStore

from ..accounts import authorizer
from ..clock import Clock
from ..scheduling.overflow_targets import OverflowTargets
from ..scheduling.scheduler import Scheduler
from ..scheduling.start_explanations import start_choices, start_estimate, start_explanation
from .requests.problems import REPORTED, field_of
from .requests.requests import Requests
from .view import mount_of


class SessionPreviews:
    """Checks a session request in the same way as a creation, but rolls the transaction back."""

    def __init__(
        self,
        requests: Requests,
        request_store: RequestStore,
        store: SessionStore,
        scheduler: Scheduler,
        clock: Clock,
        prices: UsagePriceStore,
        budgets: BudgetStore,
        overflow: OverflowTargets,
    ) -> None:
        self._overflow = overflow
        self._requests = requests
        self._request_store = request_store
        self._store = store
        self._scheduler = scheduler
        self._clock = clock
        self._prices = prices
        self._budgets = budgets

    async def get(self, caller: Caller, request: SessionSpec) -> SessionPreview:
        """Return the problems of a request, or the session that it would create and its start.

        Raises
        ------
        Forbidden
            If the caller may not create such a session.
        """
        authorizer.require(caller, "session.create")
        now = self._clock()
        try:
            new = await self._requests.resolve(caller, request)
            row, changes = await self._store.try_enqueue(new, now)
        except REPORTED as error:
            return _response(problems=_problems(error))
        costs = await self._costs(new)
        if changes is None:
            return _response(existing_session=row.id, session=_previewed(new), costs=costs)
        choices = await start_choices(self._request_store, row)
        found = await self._scheduler.query(
            partial(preview, changes=changes, choices=choices, now=now)
        )
        if found is None:
            return _response(session=_previewed(new), notices=row.notices, costs=costs)
        explained = start_explanation(found.explanation)
        explanation = replace(
            explained,
            is_complete=True,
            checks=explained.checks if found.maintenance is None else [found.maintenance],
            estimate=start_estimate(found.estimate),
            overflow=await self._overflow.of_new(row, choices) if found.explanation else (),
        )
        return _response(
            explanation,
            starts_now=found.explanation is None,
            session=_previewed(new),
            notices=row.notices,
            caps=[_cap_use(cap, is_exceeded=not is_kept) for is_kept, cap in found.caps],
            costs=costs,
        )

    async def _costs(self, new: NewSession) -> _Costs:
        prices = await self._prices.read()
        budget = await self._budgets.find(new.project_id)
        return _Costs(
            prices.cost_per_hour(new.resource_group, new.total_slots),
            prices.currency,
            None if budget is None else left_of(budget.amount, budget.spent or 0.0),
        )


@dataclass(frozen=True, slots=True)
class _Costs:
    """Cost of a session, and the remaining budget of its project; None: no price, no budget."""

    cost_per_hour: float | None = None
    currency: str = ""
    budget_left: float | None = None


def _problems(error: BaiError) -> list[FieldProblem]:
    """Return the problems in an error, at least one; the field is empty if unknown."""
    problems = error.details.get("problems")
    if isinstance(problems, list):
        return [FieldProblem(**problem) for problem in problems]
    field = field_of(error, _FIELDS.get(error.code, ""))
    return [FieldProblem(field=field, problem=error.message)]


# Field of the request that an error with this code refers to, if the error's details name none.
_FIELDS = {AlreadyExists.code: "name", InUse.code: "mounts"}


def _cap_use(cap: Violation, *, is_exceeded: bool) -> CapUse:
    used, asked, limit = (_number(cap.slot, text) for text in (cap.used, cap.asked, cap.limit))
    return CapUse(
        **shown_fields(cap),
        used_percent=percent_of(used, limit),
        total_percent=percent_of(used + asked, limit),
        is_exceeded=is_exceeded,
    )


def _number(slot: str, text: str) -> int:
    return int(text) if slot == SESSIONS else parse_amount(slot, text)


def _previewed(new: NewSession) -> PreviewedSession:
    """Return the session as it would be created, including defaults."""
    return PreviewedSession(
        name=new.name,
        type=new.type,
        project=new.project_id,
        resource_group=new.resource_group,
        image=new.image,
        architecture=new.architecture,
        priority=new.priority,
        requested=new.requested_slots,
        total=new.total_slots,
        shared_memory=format_amount(MEM, new.shared_memory_bytes),
        cluster_size=new.cluster_size,
        cluster_mode=new.cluster_mode,
        mounts=[mount_of(mount) for mount in new.mounts],
        starts_at=new.starts_at,
        batch_timeout=new.batch_timeout_seconds,
    )


_NOT_EXPLAINED = start_explanation(None)
_NO_COSTS = _Costs()


def _response(
    explanation: StartExplanation = _NOT_EXPLAINED,
    *,
    problems: Sequence[FieldProblem] = (),
    existing_session: str | None = None,
    session: PreviewedSession | None = None,
    notices: Sequence[str] = (),
    starts_now: bool = False,
    caps: Sequence[CapUse] = (),
    costs: _Costs = _NO_COSTS,
) -> SessionPreview:
    return SessionPreview(
        **fields_of(explanation),
        problems=problems,
        existing_session=existing_session,
        session=session,
        notices=notices,
        starts_now=starts_now,
        caps=caps,
        **fields_of(costs),
    )
