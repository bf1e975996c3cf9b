"""`/usage`, `/endpoint-usage` and `/usage-prices`: usage reports, and the prices of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints

from bai_services.core.errors import InvalidRequest
from bai_services.core.usage import records
from bai_services.core.usage.model import Dimension, EndpointDimension
from bai_services.core.usage.periods import Every, read_time, zone_of
from bai_services.core.user_input import shown
from bai_services.manager.usage.endpoint_reports import EndpointReportRequest
from bai_services.manager.usage.reports import DEFAULT_KEYS, MAX_KEYS, ReportRequest

from ..base import APIHandler, operation, to_json
from ..csv_export import columns_of, content_disposition, csv_of
from ..fields import Body, NameText, ResponseModel

_TAG = "usage"
_DEFAULT_PERIOD = timedelta(days=30)
MAX_PRICES = 1000

Choice = TypeVar("Choice", bound=StrEnum)


class UsageRow(ResponseModel):
    """Usage of one slot by one group in one interval.

    The amounts are in cores, GiB, devices or sessions, times seconds. ``measured_seconds``: the
    part of ``allocated_seconds`` with known utilization. ``used_seconds``: the measured part,
    weighted with the utilization. ``wasted_seconds``: the idle part, with a utilization below 5 %.
    Both are null if nothing was measured. ``waited_seconds``: time in the queue, only for the slot
    *sessions*. ``energy_joules`` is null if no device reported its power, ``cost`` if the slot has
    no price.
    """

    start: datetime
    end: datetime
    key: str
    name: str
    slot: str
    allocated_seconds: float
    waited_seconds: float | None
    measured_seconds: float
    used_seconds: float | None
    wasted_seconds: float | None
    energy_joules: float | None
    cost: float | None


class UsageReport(ResponseModel):
    """``rows`` are sorted by interval, then by the usage of the group in the whole period.

    ``measured_until``: the utilization of later usage is not counted yet. ``groups``: number of
    groups with usage, which is larger than the number of groups in ``rows`` if ``limit`` is
    smaller.
    """

    since: datetime
    until: datetime
    time_zone: str
    every: Every
    by: Dimension
    measured_until: datetime
    groups: int
    currency: str
    rows: list[UsageRow]


class EndpointUsageRow(ResponseModel):
    """Answered requests of one group in one interval, and the tokens of language models.

    The name of a token is ``ENDPOINT/TOKEN``. TOKEN is empty for the chat page, and ``*`` for
    requests without a token. ``owner`` is the owner of the endpoint; "" for groups of several
    endpoints.
    """

    start: datetime
    end: datetime
    key: str
    name: str
    owner: str
    requests: int
    input_tokens: int
    output_tokens: int


class EndpointUsageReport(ResponseModel):
    """``rows`` are sorted by interval, then by the requests of the group in the whole period.

    ``groups``: number of groups with requests, which is larger than the number of groups in
    ``rows`` if ``limit`` is smaller.
    """

    since: datetime
    until: datetime
    every: Every
    by: EndpointDimension
    groups: int
    rows: list[EndpointUsageRow]


class UsagePrice(ResponseModel):
    resource_group: str | None
    slot: str
    per_hour: float


class UsagePrices(ResponseModel):
    currency: str
    prices: list[UsagePrice]


class NewUsagePrice(Body):
    """Price of one core, GiB, device or session for one hour.

    Without ``resource_group``, it applies to all groups without a price for the slot.
    """

    resource_group: NameText | None = None
    slot: NameText
    per_hour: Annotated[float, Field(ge=0, le=1e9)]


class NewUsagePrices(Body):
    currency: Annotated[str, StringConstraints(max_length=16, pattern=r"^[^\x00-\x1f]*$")] = ""
    prices: Annotated[list[NewUsagePrice], Field(max_length=MAX_PRICES)]


class UsageHandler(APIHandler):
    @operation(
        "Report the usage of resources in a period: as a user, your own usage; as a domain admin, "
        "that of the domain; otherwise of all",
        tag=_TAG,
        returns=UsageReport,
        is_expensive=True,
        parameters={
            "since": "date or time, at most 400 days ago; default: 30 days ago. A report begins at "
            "a full hour",
            "until": "date or time, excluded; default: now",
            "every": "length of the intervals: hour (at most 31 days), day, month or period; "
            "default: period",
            "by": "total, user, project, domain, resource-group, image, session-kind or "
            "device-model; default: total. Session kinds are interactive, batch, inference and "
            "pipeline-task",
            "time_zone": "IANA name; days and months begin in this zone; default: UTC",
            "slot": "only this slot, for example cpu, cuda.shares or sessions; default: all",
            "user": "only the usage of the user with this name",
            "own": "true: only your own usage",
            "limit": f"maximum number of groups, 1 to {MAX_KEYS}, default {DEFAULT_KEYS}: those "
            "with the largest usage of the slot",
            "format": "csv: the rows as a CSV file; default: json",
            "filename": "name of the file for format=csv; default: usage.csv",
        },
    )
    async def get(self) -> records.UsageReport | None:
        given = self.query_arguments()
        as_format = _choice("format", given.get("format", _Format.JSON), _Format)
        report = await self.manager.usage.reports.read(self.caller, self._request(given))
        if as_format is _Format.JSON:
            return report
        await _finish_csv(self, report.rows, UsageRow, given.get("filename", "usage.csv"))
        return None

    def _request(self, given: dict[str, str]) -> ReportRequest:
        time_zone = given.get("time_zone", "UTC")
        since, until = _period(given, zone_of(time_zone), self.manager.clock())
        return ReportRequest(
            since=since,
            until=until,
            every=_choice("every", given.get("every", Every.PERIOD), Every),
            by=_choice("by", given.get("by", Dimension.TOTAL), Dimension),
            time_zone=time_zone,
            slot=given.get("slot", ""),
            user=given.get("user", ""),
            is_own=_is_own(given),
            limit=_limit(given),
        )


class EndpointUsageHandler(APIHandler):
    @operation(
        "Report the requests of endpoints and the tokens of language models in a period: as a "
        "user, of your own endpoints; as a domain admin, of those of the domain; otherwise of all",
        tag=_TAG,
        returns=EndpointUsageReport,
        is_expensive=True,
        parameters={
            "since": "date, at most 400 days ago; default: 30 days ago. Days are those of UTC",
            "until": "date, excluded; default: now",
            "every": "length of the intervals: day, month or period; default: period",
            "by": "total, endpoint, token, user (owner of the endpoint), project or domain; "
            "default: total",
            "endpoint": "only the endpoint with this id or name, also if it is deleted",
            "user": "only endpoints of the user with this name",
            "own": "true: only your own endpoints",
            "limit": f"maximum number of groups, 1 to {MAX_KEYS}, default {DEFAULT_KEYS}: those "
            "with the most requests",
            "format": "csv: the rows as a CSV file; default: json",
            "filename": "name of the file for format=csv; default: endpoint-usage.csv",
        },
    )
    async def get(self) -> records.EndpointUsageReport | None:
        given = self.query_arguments()
        as_format = _choice("format", given.get("format", _Format.JSON), _Format)
        report = await self.manager.usage.endpoint_reports.read(self.caller, self._request(given))
        if as_format is _Format.JSON:
            return report
        filename = given.get("filename", "endpoint-usage.csv")
        await _finish_csv(self, report.rows, EndpointUsageRow, filename)
        return None

    def _request(self, given: dict[str, str]) -> EndpointReportRequest:
        since, until = _period(given, zone_of("UTC"), self.manager.clock())
        return EndpointReportRequest(
            since=since,
            until=until,
            every=_choice("every", given.get("every", Every.PERIOD), Every),
            by=_choice("by", given.get("by", EndpointDimension.TOTAL), EndpointDimension),
            endpoint=given.get("endpoint", ""),
            user=given.get("user", ""),
            is_own=_is_own(given),
            limit=_limit(given),
        )


class UsagePricesHandler(APIHandler):
    @operation("Read the prices of slots", tag=_TAG, returns=UsagePrices)
    async def get(self) -> records.UsagePrices:
        return await self.manager.usage.prices.read(self.caller)

    @operation(
        "Replace the prices of slots; they apply to hours whose totals are computed later",
        tag=_TAG,
        body=NewUsagePrices,
        returns=UsagePrices,
    )
    async def put(self, body: NewUsagePrices) -> records.UsagePrices:
        prices = [price.model_dump() for price in body.prices]
        return await self.manager.usage.prices.replace(self.caller, body.currency, prices)


class _Format(StrEnum):
    JSON = "json"
    CSV = "csv"


def _choice(name: str, text: str, kind: type[Choice]) -> Choice:
    try:
        return kind(text)
    except ValueError:
        values = ", ".join(kind)
        raise InvalidRequest(
            f"{name}={shown(text)!r} must be one of {values}", field=name
        ) from None


async def _finish_csv(
    handler: APIHandler, rows: Sequence[Any], model: type[ResponseModel], filename: str
) -> None:
    handler.set_header("Content-Type", "text/csv; charset=utf-8")
    handler.set_header("Content-Disposition", content_disposition(filename))
    await handler.finish(csv_of(rows, columns_of(model), to_json))


def _period(
    given: Mapping[str, str], zone: ZoneInfo, now: datetime
) -> tuple[datetime, datetime | None]:
    """Return the start and the end of the requested period; the end is None if it is not given."""
    since, until = (
        read_time(name, given[name], zone) if name in given else None for name in ("since", "until")
    )
    return since or now - _DEFAULT_PERIOD, until


def _is_own(given: Mapping[str, str]) -> bool:
    return given.get("own", "false").lower() == "true"


def _limit(given: Mapping[str, str]) -> int:
    limit = given.get("limit")
    if limit is None:
        return DEFAULT_KEYS
    if not (limit.isascii() and limit.isdigit() and len(limit) < 6):
        raise InvalidRequest(f"limit={shown(limit)!r} is not a number", field="limit")
    return int(limit)


ROUTES = [
    ("/usage", UsageHandler),
    ("/endpoint-usage", EndpointUsageHandler),
    ("/usage-prices", UsagePricesHandler),
]
