"""Reports about the requests and tokens of endpoints: sums over days, months or a period."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest
from bai_services.core.usage.model import Dimension, EndpointDimension, largest_first
from bai_services.core.usage.periods import Every, Interval, intervals_of
from bai_services.core.usage.records import EndpointUsageReport, EndpointUsageRow
from bai_services.db.serving.usage import EndpointSum, EndpointUsageScope, UsageStore
from bai_services.db.usage.record_writes import time_of
from bai_services.db.usage.reports import UsageReportStore

from ..clock import Clock
from .reports import DEFAULT_KEYS, check_limit, check_period, check_rows, visible_usage

_NAMED = {
    EndpointDimension.USER: Dimension.USER,
    EndpointDimension.PROJECT: Dimension.PROJECT,
}


@dataclass(frozen=True, slots=True)
class EndpointReportRequest:
    """The parameters of a report.

    ``until``: None means now. ``user``: only endpoints of the owner with this username. ``is_own``:
    only the caller's endpoints. ``endpoint``: only the endpoint with this id or name. The report
    contains the ``limit`` groups with the most requests.
    """

    since: datetime
    until: datetime | None = None
    every: Every = Every.PERIOD
    by: EndpointDimension = EndpointDimension.TOTAL
    endpoint: str = ""
    user: str = ""
    is_own: bool = False
    limit: int = DEFAULT_KEYS


class EndpointReports:
    """Reads reports. Users see their own endpoints, domain admins the endpoints of the domain."""

    def __init__(self, usage: UsageStore, users: UsageReportStore, clock: Clock) -> None:
        self._usage = usage
        self._users = users
        self._clock = clock

    async def read(self, caller: Caller, request: EndpointReportRequest) -> EndpointUsageReport:
        """Return the requests of the groups that the caller may see. Days are days of UTC.

        Raises
        ------
        InvalidRequest
            If the period is invalid, or the report has too many rows.
        NotFound
            If there is no such user, or the caller may not see the user.
        """
        check_limit(request.limit)
        domain, owner_id = await visible_usage(
            self._users, caller, user=request.user, is_own=request.is_own
        )
        intervals = _intervals(request, self._clock())
        since, until = time_of(intervals[0].start), time_of(intervals[-1].end)
        scope = EndpointUsageScope(request.by, domain, owner_id, request.endpoint or None)
        totals = await self._usage.sums(scope, since, until, by_day=False)
        keys = list(largest_first({each.key: each.requests for each in totals}, request.limit))
        check_rows(len(intervals) * len(keys))
        if len(intervals) == 1:
            sums = [[each for each in totals if each.key in set(keys)]]
        else:
            sums = await self._sums(replace(scope, keys=keys), intervals, request.every)
        # The name of a group is the same in all intervals.
        names = {each.key: each.name for each in totals}
        if (dimension := _NAMED.get(request.by)) is not None:
            names = await self._users.names(dimension, keys)
        owner_ids = sorted({each.owner_id for each in totals if each.key in set(keys)} - {""})
        owners = await self._users.names(Dimension.USER, owner_ids)
        places = {key: place for place, key in enumerate(keys)}
        return EndpointUsageReport(
            since=since,
            until=until,
            every=request.every,
            by=request.by,
            groups=len(totals),
            rows=[
                _row(
                    interval,
                    each,
                    names.get(each.key) or each.key,
                    owners.get(each.owner_id, each.owner_id),
                )
                for interval, found in zip(intervals, sums, strict=True)
                for each in sorted(found, key=lambda each: places[each.key])
            ],
        )

    async def _sums(
        self, scope: EndpointUsageScope, intervals: list[Interval], every: Every
    ) -> list[list[EndpointSum]]:
        """Return the sums of each interval."""
        if every is not Every.DAY:
            return [
                await self._usage.sums(scope, time_of(i.start), time_of(i.end), by_day=False)
                for i in intervals
            ]
        first, last = time_of(intervals[0].start), time_of(intervals[-1].end)
        by_start: dict[datetime, list[EndpointSum]] = {time_of(i.start): [] for i in intervals}
        for each in await self._usage.sums(scope, first, last, by_day=True):
            if each.day is not None:
                by_start[each.day].append(each)
        return list(by_start.values())


def _intervals(request: EndpointReportRequest, now: datetime) -> list[Interval]:
    if request.every is Every.HOUR:
        raise InvalidRequest(
            "requests of endpoints are counted by day; choose every=day", field="every"
        )
    until = check_period(request.since, request.until, now)
    since = request.since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return intervals_of(since, until, request.every, ZoneInfo("UTC"))


def _row(interval: Interval, found: EndpointSum, name: str, owner: str) -> EndpointUsageRow:
    return EndpointUsageRow(
        start=time_of(interval.start),
        end=time_of(interval.end),
        key=found.key,
        name=name,
        owner=owner,
        requests=found.requests,
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
    )
