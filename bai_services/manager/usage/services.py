"""Build the services for usage statistics."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.reports import UsageReportStore

from ..context import ManagerContext
from ..scheduling.lease import Lease
from .aggregation import UsageAggregation
from .prices import PriceList
from .reports import UsageReports


@dataclass(frozen=True, slots=True)
class UsageServices:
    """Usage reports and prices, and the loop that computes the totals of each hour."""

    reports: UsageReports
    prices: PriceList
    aggregation: UsageAggregation


def usage_services(context: ManagerContext, lease: Lease) -> UsageServices:
    """Build the services and pass them their dependencies."""
    database, clock = context.database, context.clock
    prices = UsagePriceStore(database)
    return UsageServices(
        reports=UsageReports(UsageReportStore(database), prices, clock),
        prices=PriceList(prices, context.audit),
        aggregation=UsageAggregation(
            UsageAggregateStore(database), UsageSampleStore(database), prices, lease, clock
        ),
    )
