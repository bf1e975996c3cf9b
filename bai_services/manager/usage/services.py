"""Build the services for usage statistics."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.serving.usage import UsageStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.db.usage.budgets import BudgetStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.reports import UsageReportStore

from ..accounts.projects import Projects
from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.planned_stops import PlannedStops
from .aggregation import UsageAggregation
from .budget_watch import BudgetWatch
from .budgets import Budgets
from .endpoint_reports import EndpointReports
from .prices import PriceList
from .reports import UsageReports


@dataclass(frozen=True, slots=True)
class UsageServices:
    """Usage reports, prices and budgets, and the loops that compute totals and spent amounts."""

    reports: UsageReports
    endpoint_reports: EndpointReports
    prices: PriceList
    aggregation: UsageAggregation
    budgets: Budgets
    budget_watch: BudgetWatch


def usage_services(
    context: ManagerContext, projects: Projects, stops: PlannedStops, lease: Lease
) -> UsageServices:
    """Build the services and pass them their dependencies."""
    database, clock = context.database, context.clock
    prices = UsagePriceStore(database)
    reports, budgets = UsageReportStore(database), BudgetStore(database)
    watch = BudgetWatch(context, budgets, reports, prices, stops, lease)
    return UsageServices(
        reports=UsageReports(reports, prices, clock),
        endpoint_reports=EndpointReports(UsageStore(database), reports, clock),
        prices=PriceList(prices, context.audit),
        aggregation=UsageAggregation(
            UsageAggregateStore(database), UsageSampleStore(database), prices, lease, clock
        ),
        budgets=Budgets(context, budgets, prices, projects, watch),
        budget_watch=watch,
    )
