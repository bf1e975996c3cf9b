"""Usage reports: sums over hours, days, months or a period, and the prices of slots."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound, Unavailable
from bai_services.core.resources import slot_type
from bai_services.core.usage.model import (
    DAY,
    HOUR,
    SESSIONS,
    WAITING,
    Dimension,
    Measures,
    Prices,
    UsageRecord,
    largest_first,
    measures_of,
    unit_of,
)
from bai_services.core.usage.periods import (
    KEPT_FOR,
    MAX_HOURS,
    Every,
    Interval,
    full_hour,
    intervals_of,
    zone_of,
)
from bai_services.core.usage.records import UsageReport, UsageRow
from bai_services.core.user_input import shown
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.record_writes import time_of
from bai_services.db.usage.reports import Sum, UsageReportStore, UsageScope

from ..accounts import authorizer
from ..clock import Clock

MAX_KEYS = 1000
MAX_ROWS = 20_000
DEFAULT_KEYS = 20
# Maximum period of missing totals: a longer period would make a report too slow.
_MAX_MISSING = 3 * DAY
_RETRY_SECONDS = 60

# Sums by index of the interval, key and slot.
_Sums = dict[tuple[int, str, str], Measures]


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The parameters of a report.

    ``until`` None means now. ``user`` is a username; ``is_own``: only the caller's own usage. The
    report contains the ``limit`` groups with the largest usage of ``slot``. If ``slot`` is empty,
    the usage is the session time; for device models, it is the usage of all slots.
    """

    since: datetime
    until: datetime | None = None
    every: Every = Every.PERIOD
    by: Dimension = Dimension.TOTAL
    time_zone: str = "UTC"
    slot: str = ""
    user: str = ""
    is_own: bool = False
    limit: int = DEFAULT_KEYS


class UsageReports:
    """Reads reports. A user sees their own usage, a domain admin the usage of the domain."""

    def __init__(self, store: UsageReportStore, prices: UsagePriceStore, clock: Clock) -> None:
        self._store = store
        self._prices = prices
        self._clock = clock

    async def read(self, caller: Caller, request: ReportRequest) -> UsageReport:
        """Return the usage of the groups that the caller may see.

        Raises
        ------
        InvalidRequest
            If the period, time zone or slot is invalid, or the report has too many rows.
        NotFound
            If there is no such user, or the caller may not see the user.
        Unavailable
            If the totals of more than three days of the period are not computed yet.
        """
        scope = await self._scope(caller, request)
        zone, now = zone_of(request.time_zone), self._clock()
        since, until = _period(request, now)
        intervals = intervals_of(since, until, request.every, zone)
        if not intervals:
            raise InvalidRequest("since must be before until, and in the past", field="since")
        end = intervals[-1].end
        done = await self._store.done_until()
        if done is None:  # there has never been a session
            done = max(intervals[0].start, end - _MAX_MISSING)
        measured_until = max(intervals[0].start, full_hour(min(done, end)))
        if end - measured_until > _MAX_MISSING + HOUR:
            raise Unavailable(
                "the statistics of this period are still being computed; try again later",
                retry_after_seconds=_RETRY_SECONDS,
            )
        prices = await self._prices.read()
        # Select the groups by their usage in the whole period.
        whole = Interval(intervals[0].start, end)
        live = await self._live(scope, Interval(measured_until, end), intervals, prices)
        totals = await self._sums(scope, [whole], measured_until, Every.PERIOD, zone)
        _merge(totals, {(0, key, slot): m for (_, key, slot), m in _flat(live).items()})
        keys = _largest(totals, request)
        groups = len({key for _, key, _ in totals})
        chosen = set(keys)
        check_rows(len(intervals) * sum(key in chosen for _, key, _ in totals))
        if len(intervals) == 1:
            sums = totals
        else:
            narrow = replace(scope, keys=() if scope.by is Dimension.TOTAL else tuple(keys))
            sums = await self._sums(narrow, intervals, measured_until, request.every, zone)
            _merge(sums, live)
        names = await self._store.names(scope.by, keys)
        return UsageReport(
            since=time_of(whole.start),
            until=time_of(whole.end),
            time_zone=request.time_zone,
            every=request.every,
            by=request.by,
            measured_until=time_of(measured_until),
            groups=groups,
            currency=prices.currency,
            rows=_rows(sums, intervals, keys, names),
        )

    async def _scope(self, caller: Caller, request: ReportRequest) -> UsageScope:
        check_limit(request.limit)
        if request.slot and request.slot != SESSIONS:
            slot_type(request.slot)
        domain, owner_id = await visible_usage(
            self._store, caller, user=request.user, is_own=request.is_own
        )
        return UsageScope(request.by, domain, owner_id, request.slot)

    async def _sums(
        self,
        scope: UsageScope,
        intervals: Sequence[Interval],
        measured_until: int,
        every: Every,
        zone: ZoneInfo,
    ) -> _Sums:
        """Return the sums from the stored totals, which end at ``measured_until``."""
        sums: _Sums = defaultdict(Measures)
        closed = [Interval(i.start, min(i.end, measured_until)) for i in intervals]
        if every in (Every.HOUR, Every.DAY):
            starts = [interval.start for interval in intervals]
            step = HOUR if every is Every.HOUR else DAY
            for span, offset in _spans(closed, every, zone):
                for found in await self._store.sums_of_steps(scope, span, step, offset):
                    at = max(found.at or 0, span.start)
                    _add(sums, max(0, bisect_right(starts, at) - 1), found)
            return sums
        for index, interval in enumerate(closed):
            if interval.start < interval.end:
                for found in await self._store.sums(scope, interval):
                    _add(sums, index, found)
        return sums

    async def _live(
        self,
        scope: UsageScope,
        live: Interval,
        intervals: Sequence[Interval],
        prices: Prices,
    ) -> _Sums:
        """Return the exact usage since the end of the stored totals."""
        sums: _Sums = defaultdict(Measures)
        if live.start >= live.end:
            return sums
        open_ones = [
            (index, max(i.start, live.start), i.end)
            for index, i in enumerate(intervals)
            if i.end > live.start
        ]
        async for record in self._store.recent(scope, live):
            key = record.holder.key(scope.by)
            if not key and scope.by is not Dimension.TOTAL:
                continue
            for index, start, end in open_ones:
                measures = measures_of(record, start, end, prices)
                if measures is not None:
                    sums[index, key, _slot(record)].add(measures)
        return sums


async def visible_usage(
    store: UsageReportStore, caller: Caller, *, user: str, is_own: bool
) -> tuple[str | None, str | None]:
    """Return the domain and the id of the owner to which a report is limited; None: no limit.

    ``user`` is the username of a user, or "". ``is_own``: only the caller's own usage.

    Raises
    ------
    NotFound
        If there is no such user, or the caller may not see the user.
    """
    visible = authorizer.visibility(caller, "usage.read")
    if is_own or user == caller.username:
        if caller.user_id is None:
            raise Forbidden("only users have usage of their own", action="usage.read")
        return None, caller.user_id
    if not user:
        return visible.domain, visible.owner_id
    found = None
    if visible.owner_id is None:
        found = await store.user_id(user, visible.domain)
    if found is None:
        raise NotFound(f"there is no user {shown(user)}, or you may not see the user")
    return visible.domain, found


def check_period(since: datetime, until: datetime | None, now: datetime) -> datetime:
    """Return the end of a period, at most ``now``.

    Raises
    ------
    InvalidRequest
        If the period is empty, or begins before the retention time.
    """
    end = now if until is None else min(until, now)
    if since >= end:
        raise InvalidRequest("since must be before until, and in the past", field="since")
    if since < now - KEPT_FOR:
        raise InvalidRequest(
            f"statistics are kept for {KEPT_FOR.days} days; choose a later since", field="since"
        )
    return end


def _slot(record: UsageRecord) -> str:
    return SESSIONS if record.slot == WAITING else record.slot


def _add(sums: _Sums, index: int, found: Sum) -> None:
    sums[index, found.key, found.slot].add(found.measures)


def _merge(sums: _Sums, more: Mapping[tuple[int, str, str], Measures]) -> None:
    for key, measures in more.items():
        sums[key].add(measures)


def _flat(sums: _Sums) -> _Sums:
    """Return the sums over all intervals, with the index 0."""
    flat: _Sums = defaultdict(Measures)
    for (_, key, slot), measures in sums.items():
        flat[0, key, slot].add(measures)
    return flat


def _spans(
    intervals: Sequence[Interval], every: Every, zone: ZoneInfo
) -> list[tuple[Interval, int]]:
    """Join consecutive intervals whose starts have the same offset from multiples of a day.

    Return each joined interval with the offset, which changes with daylight saving time.
    """
    spans: list[tuple[Interval, int]] = []
    for interval in intervals:
        if interval.start >= interval.end:
            continue
        offset = 0
        if every is Every.DAY:
            local = time_of(interval.start).astimezone(zone).utcoffset() or timedelta()
            # Round the offset to full hours, because totals are hourly. Days of a time zone with an
            # offset of half hours then begin at a full hour.
            offset = full_hour(local.total_seconds()) % DAY
        if spans and spans[-1][1] == offset:
            spans[-1] = (Interval(spans[-1][0].start, interval.end), offset)
        else:
            spans.append((interval, offset))
    return spans


def _period(request: ReportRequest, now: datetime) -> tuple[datetime, datetime]:
    since = request.since
    until = check_period(since, request.until, now)
    if request.every is Every.HOUR and until - since > timedelta(hours=MAX_HOURS):
        raise InvalidRequest(
            f"a report by hour covers at most {MAX_HOURS // 24} days; choose a shorter period, or "
            "every=day",
            field="every",
        )
    return since.astimezone(UTC), until.astimezone(UTC)


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_KEYS:
        raise InvalidRequest(f"limit must be a number from 1 to {MAX_KEYS}", field="limit")


def check_rows(count: int) -> None:
    if count > MAX_ROWS:
        raise InvalidRequest(
            f"the report may have {count} rows; the maximum is {MAX_ROWS}; choose a shorter "
            "period, longer intervals, a slot or a smaller limit",
            field="every",
        )


def _largest(totals: _Sums, request: ReportRequest) -> list[str]:
    """Return the groups with the largest usage, the largest first."""
    slot = request.slot
    if not slot and request.by is not Dimension.DEVICE_MODEL:
        slot = SESSIONS
    ranks: dict[str, float] = {}
    for (_, key, of_slot), measures in totals.items():
        # Groups with only queue time are last, ordered by that time.
        rank = measures.allocated / unit_of(of_slot) + measures.waited / KEPT_FOR.total_seconds()
        ranks[key] = ranks.get(key, 0.0) + (rank if slot in ("", of_slot) else 0.0)
    return list(largest_first(ranks, request.limit))


def _rows(
    sums: _Sums, intervals: Sequence[Interval], keys: Sequence[str], names: Mapping[str, str]
) -> list[UsageRow]:
    places = {key: place for place, key in enumerate(keys)}
    wanted = [item for item in sums.items() if item[0][1] in places]
    wanted.sort(key=lambda item: (item[0][0], places[item[0][1]], item[0][2]))
    return [
        _row(intervals[index], key, names.get(key, key), slot, found)
        for (index, key, slot), found in wanted
    ]


def _row(interval: Interval, key: str, name: str, slot: str, sums: Measures) -> UsageRow:
    unit = unit_of(slot)
    is_measured = sums.measured > 0
    return UsageRow(
        start=time_of(interval.start),
        end=time_of(interval.end),
        key=key,
        name=name,
        slot=slot,
        allocated_seconds=round(sums.allocated / unit, 3),
        waited_seconds=round(sums.waited, 3) if slot == SESSIONS else None,
        measured_seconds=round(sums.measured / unit, 3),
        used_seconds=round(sums.used / unit, 3) if is_measured else None,
        wasted_seconds=round(sums.wasted / unit, 3) if is_measured else None,
        energy_joules=None if sums.energy is None else round(sums.energy, 3),
        cost=None if sums.cost is None else round(sums.cost, 6),
    )
