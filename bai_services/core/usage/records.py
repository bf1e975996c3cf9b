"""Records of the REST API for usage statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage of one slot by one group in one interval.

    The amounts are in units (cores, GiB, devices, sessions) times seconds. ``measured_seconds`` is
    the part of ``allocated_seconds`` with known utilization. ``used_seconds`` is this part weighted
    with the utilization, ``wasted_seconds`` its idle part; both are None if nothing was measured.
    ``waited_seconds`` is the time in the queue, only for the slot *sessions*. ``energy_joules`` is
    None if no device reported its power. ``cost`` is None if the slot has no price.
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


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage in the intervals of a period, oldest interval first.

    In each interval, the group with the largest usage in the whole period is first.

    Utilization is counted until ``measured_until``; later usage is allocated, but not measured.
    ``groups`` is the number of groups with usage; the rows contain only the largest groups.
    """

    since: datetime
    until: datetime
    time_zone: str
    every: str
    by: str
    measured_until: datetime
    groups: int
    currency: str
    rows: Sequence[UsageRow]


@dataclass(frozen=True, slots=True)
class EndpointUsageRow:
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


@dataclass(frozen=True, slots=True)
class EndpointUsageReport:
    """Requests in the intervals of a period, oldest interval first.

    In each interval, the group with the most requests in the whole period is first. ``groups`` is
    the number of groups with requests; the rows contain only the largest groups.
    """

    since: datetime
    until: datetime
    every: str
    by: str
    groups: int
    rows: Sequence[EndpointUsageRow]


@dataclass(frozen=True, slots=True)
class UsagePrice:
    """Price of one unit of a slot for one hour; without a resource group, the default price."""

    resource_group: str | None
    slot: str
    per_hour: float


@dataclass(frozen=True, slots=True)
class UsagePrices:
    currency: str
    prices: Sequence[UsagePrice]
