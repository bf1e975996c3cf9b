"""Administer the budgets of projects, and read the spent amounts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller, Target, reaches
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.periods import require_not_past
from bai_services.core.record_fields import fields_of
from bai_services.core.usage.budgets import (
    DEFAULT_PERCENTS,
    Mode,
    Period,
    ProjectBudget,
    left_of,
    spent_percent,
)
from bai_services.core.usage.periods import KEPT_FOR, zone_of
from bai_services.db.usage.budgets import BudgetRow, BudgetStore
from bai_services.db.usage.prices import UsagePriceStore

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..context import ManagerContext
from .budget_watch import BudgetWatch, period_of

_NULLABLE = frozenset({"starts_at", "ends_at", "stop_after_minutes"})
# A change of one of these fields resets the reported percentage.
_LIMITS = frozenset({"amount", "warn_percents", "period", "starts_at", "ends_at", "time_zone"})


class Budgets:
    """Manages budgets. Domain admins set the budgets of their projects; members may read them.

    Domain admins cannot change budgets of superadmins.

    ``key`` is the id or name of a project.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: BudgetStore,
        prices: UsagePriceStore,
        projects: Projects,
        watch: BudgetWatch,
    ) -> None:
        self._store = store
        self._prices = prices
        self._projects = projects
        self._watch = watch
        self._clock = context.clock
        self._audit = context.audit
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[ProjectBudget]:
        visible = authorizer.visibility(caller, "budget.read")
        page = await self._store.page(query, visible.domain, visible.project_ids)
        currency = (await self._prices.read()).currency
        return page.with_items([self._record(row, currency) for row in page.items])

    async def get(self, caller: Caller, key: str) -> ProjectBudget:
        row = await self._find(caller, key)
        return self._record(row, (await self._prices.read()).currency)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ProjectBudget:
        """Set the budget of the project ``spec["project"]``.

        Raises
        ------
        AlreadyExists
            If the project has a budget.
        InvalidRequest
            If the period or the time zone is not valid.
        """
        authorizer.require(caller, "budget.write")
        project = await self._projects.get(caller, spec["project"])
        authorizer.require(caller, "budget.write", Target(domain=project.domain))
        values = {
            "project_id": project.id,
            "created_at": self._clock(),
            "changed_by_role": caller.role,
            "amount": spec["amount"],
            "mode": Mode(spec.get("mode", Mode.WARN)),
            "warn_percents": _percents(spec.get("warn_percents", DEFAULT_PERCENTS)),
            "period": Period(spec.get("period", Period.MONTH)),
            "starts_at": spec.get("starts_at"),
            "ends_at": spec.get("ends_at"),
            "time_zone": spec.get("time_zone", "UTC"),
            "stop_after_minutes": spec.get("stop_after_minutes"),
        }
        self._check(values)
        require_not_past(values["ends_at"], values["created_at"], "ends_at")
        entry = self._audit.entry(
            caller,
            "budget.create",
            project.id,
            domain=project.domain,
            name=project.name,
            amount=str(values["amount"]),
            mode=values["mode"],
        )
        await self._store.create(values, entry)
        return await self._refreshed(caller, project.id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> ProjectBudget:
        """Change a budget.

        If ``changes`` contains ``version``, it must be the current version.
        """
        row = await self._find_writable(caller, key)
        values = {
            name: value
            for name, value in changes.items()
            if name != "version" and (value is not None or name in _NULLABLE)
        }
        if "warn_percents" in values:
            values["warn_percents"] = _percents(values["warn_percents"])
        self._check({**fields_of(row), **values})
        if "ends_at" in values and values["ends_at"] != row.ends_at:
            require_not_past(values["ends_at"], self._clock(), "ends_at")
        if values.keys() & _LIMITS:
            values["reported_percent"] = 0
        details = self._audit.changes(fields_of(row), values)
        entry = self._audit.entry(
            caller,
            "budget.update",
            row.project_id,
            domain=row.domain,
            name=row.project,
            **details,
        )
        version = changes.get("version") or row.version
        values["changed_by_role"] = caller.role
        await self._store.update(row.project_id, version, values, entry)
        return await self._refreshed(caller, row.project_id)

    async def delete(self, caller: Caller, key: str) -> None:
        row = await self._find_writable(caller, key)
        entry = self._audit.entry(
            caller, "budget.delete", row.project_id, domain=row.domain, name=row.project
        )
        await self._store.delete(row.project_id, entry)
        self._capacity_changed()

    async def _refreshed(self, caller: Caller, project_id: str) -> ProjectBudget:
        await self._watch.refresh()
        self._capacity_changed()
        return await self.get(caller, project_id)

    async def _find(self, caller: Caller, key: str) -> BudgetRow:
        authorizer.require(caller, "budget.read")
        project = await self._projects.get(caller, key)
        row = await self._store.find(project.id)
        if row is None:
            raise NotFound(f"project {project.name} has no budget", project=project.id)
        return row

    async def _find_writable(self, caller: Caller, key: str) -> BudgetRow:
        authorizer.require(caller, "budget.write")
        row = await self._find(caller, key)
        if not reaches(caller, "budget.write", Target(domain=row.domain)):
            raise NotFound(f"project {row.project} has no budget, or you may not change it")
        authorizer.require_not_above(caller, "budget.write", "budget", row.changed_by_role)
        return row

    def _check(self, values: Mapping[str, Any]) -> None:
        zone_of(values["time_zone"])
        start, end = values["starts_at"], values["ends_at"]
        if values["period"] == Period.MONTH:
            if start is not None or end is not None:
                raise InvalidRequest(
                    "a monthly budget has no starts_at and no ends_at; use period=fixed",
                    field="period",
                )
            return
        if start is None or end is None or end <= start:
            raise InvalidRequest(
                "a fixed budget requires starts_at and a later ends_at", field="ends_at"
            )
        if end - start > KEPT_FOR:
            raise InvalidRequest(
                f"a budget covers at most {KEPT_FOR.days} days, because older costs are removed",
                field="ends_at",
            )

    def _record(self, row: BudgetRow, currency: str) -> ProjectBudget:
        values = fields_of(row)
        for name in ("spent_since", "reported_percent"):
            del values[name]
        now = self._clock()
        start, end = period_of(row, now)
        # Ignore the stored costs if they belong to another period.
        spent = row.spent if row.spent_since == start else None
        percent: int | None = None
        if spent is not None:
            percent = spent_percent(spent, row.amount) if start <= now else 0
        stops_at: datetime | None = None
        if row.blocked_at is not None and row.stop_after_minutes is not None:
            stops_at = row.blocked_at + timedelta(minutes=row.stop_after_minutes)
        return ProjectBudget(
            **{
                **values,
                "mode": Mode(row.mode),
                "period": Period(row.period),
                "currency": currency,
                "period_start": start,
                "period_end": end,
                "spent": None if spent is None else round(spent, 2),
                "spent_percent": percent,
                "left": None if spent is None else left_of(row.amount, spent),
                "stops_at": stops_at,
            }
        )


def _percents(percents: Any) -> list[int]:
    return sorted(set(percents))
