"""`/budgets`: the budgets of projects, and their spent amounts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from bai_services.core.listing import ListQuery, Page
from bai_services.core.usage import budgets as records
from bai_services.core.usage.budgets import (
    AMOUNT_DECIMALS,
    DEFAULT_PERCENTS,
    MAX_AMOUNT,
    MAX_PERCENTS,
    MAX_STOP_MINUTES,
)

from ..base import APIHandler, operation
from ..fields import Body, Count, Instant, NameText, ResponseModel, ShortText

_TAG = "budgets"

Amount = Annotated[
    Decimal,
    Field(ge=0, le=MAX_AMOUNT, decimal_places=AMOUNT_DECIMALS),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_AMOUNT}),
]
Percents = Annotated[list[Annotated[int, Field(ge=1, le=1000)]], Field(max_length=MAX_PERCENTS)]
StopMinutes = Annotated[int, Field(ge=0, le=MAX_STOP_MINUTES)]
ModeName = Literal["warn", "block"]
PeriodName = Literal["month", "fixed"]


class BudgetChange(Body):
    """``version``: the version that you have read; if there is a newer one, you get a conflict.
    ``amount``: with at most two decimal places.

    ``mode``: ``warn`` only, or ``block``: no session of the project starts once the amount is
    spent. Usage is charged as time passes, so running sessions can spend more.
    ``stop_after_minutes``: with ``block``, time from the spending of the amount to the stop of
    running sessions; null: they continue. ``period``: each ``month`` in ``time_zone``, or
    ``fixed``: from ``starts_at`` to ``ends_at``.
    """

    version: Count | None = None
    amount: Amount | None = None
    mode: ModeName | None = None
    warn_percents: Percents | None = None
    period: PeriodName | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    time_zone: NameText | None = None
    stop_after_minutes: StopMinutes | None = None


class NewBudget(Body):
    """``project``: id or name. The other fields are described at ``BudgetChange``."""

    project: ShortText
    amount: Amount
    mode: ModeName = "warn"
    warn_percents: Percents = list(DEFAULT_PERCENTS)
    period: PeriodName = "month"
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    time_zone: NameText = "UTC"
    stop_after_minutes: StopMinutes | None = None


class ProjectBudget(ResponseModel):
    """``spent``: cost of the current period until ``spent_at``; null: not computed yet.

    ``blocked_at``: time from which no session of the project starts. ``stops_at``: when its running
    sessions are stopped. ``changed_by_role``: role of the user who set or last changed the budget;
    domain administrators cannot change budgets of superadmins.
    """

    project_id: str
    project: str
    domain: str
    created_at: datetime
    version: int
    amount: float
    currency: str
    mode: str
    warn_percents: list[int]
    period: str
    starts_at: datetime | None
    ends_at: datetime | None
    time_zone: str
    stop_after_minutes: int | None
    period_start: datetime
    period_end: datetime
    spent: float | None
    spent_percent: int | None
    left: float | None
    spent_at: datetime | None
    blocked_at: datetime | None
    stops_at: datetime | None
    changed_by_role: str


class BudgetsHandler(APIHandler):
    @operation(
        "List the budgets of the projects that the caller may see",
        tag=_TAG,
        returns=ProjectBudget,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.ProjectBudget]:
        return await self.manager.usage.budgets.page(self.caller, query)

    @operation(
        "Set the budget of a project",
        tag=_TAG,
        body=NewBudget,
        returns=ProjectBudget,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewBudget) -> records.ProjectBudget:
        return await self.manager.usage.budgets.create(self.caller, body.given_fields())


class BudgetHandler(APIHandler):
    @operation("Read the budget of a project", tag=_TAG, returns=ProjectBudget)
    async def get(self, key: str) -> records.ProjectBudget:
        return await self.manager.usage.budgets.get(self.caller, key)

    @operation("Change the budget of a project", tag=_TAG, body=BudgetChange, returns=ProjectBudget)
    async def patch(self, key: str, body: BudgetChange) -> records.ProjectBudget:
        return await self.manager.usage.budgets.update(self.caller, key, body.given_fields())

    @operation("Delete the budget of a project", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.usage.budgets.delete(self.caller, key)


ROUTES = [("/budgets", BudgetsHandler), (r"/budgets/(?P<key>[^/]+)", BudgetHandler)]
