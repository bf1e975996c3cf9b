"""Read the Standard Workload Format 2.2: one job of 18 numbers per line; -1 means unknown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import isqrt

from ...errors import InvalidRequest
from ...resources import ResourceSlots
from ...user_input import read_decimal, read_whole, shown
from ..placement import AgentState, Mode
from .workload import ARCHITECTURE, ENGINE, GROUP, InvalidRow, Job, RowError, Workload, check_new

# The fields in their order, named as in messages about invalid rows.
FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average cpu time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user id",
    "group id",
    "executable number",
    "queue number",
    "partition number",
    "preceding job number",
    "think time",
)
UNKNOWN = -1
# Statuses of the parts of an interrupted job; another line describes the whole job.
PARTS = (2, 3, 4)
CANCELLED = 5
MAX_PROCESSORS = 2**26
MAX_NODES = 100_000
_MILLICORES = 1000
_HEADER = re.compile(r";\s*(?P<name>\w+)\s*:\s*(?P<value>.*)")
_NO_MEMORY = 2**50  # the format does not record the memory of a node


def read_swf(lines: Iterable[str], file: str) -> Workload:
    """Return the workload of a file in the Standard Workload Format.

    A processor is a core. In the header, ``MaxNodes`` is the number of agents (default: 1), and
    ``MaxProcs`` is the total number of their cores (default: one core per agent). If the header
    defines neither, there is one agent with the cores of the widest job. A job that is wider than
    one agent becomes a multi-node session with as few equal kernels as possible. Memory, preceding
    jobs and think times are ignored. Jobs that were cancelled before they ran, jobs with an unknown
    run time, and lines for the parts of an interrupted job are skipped.

    Raises
    ------
    InvalidRequest
        If the header has more than ``MAX_PROCESSORS`` cores or ``MAX_NODES`` nodes.
    """
    header: dict[str, int] = {}
    rows: list[tuple[int, list[float]]] = []
    invalid_rows: list[InvalidRow] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text.startswith(";"):
            _note_header(header, text)
        elif text:
            try:
                rows.append((number, _numbers(text)))
            except RowError as error:
                invalid_rows.append(InvalidRow(file, number, error.column, str(error)))
    for name, maximum in (("MaxProcs", MAX_PROCESSORS), ("MaxNodes", MAX_NODES)):
        if header.get(name, 0) > maximum:
            raise InvalidRequest(
                f"{file}: {name} is {header[name]}; at most {maximum} are replayed"
            )
    widest = max((min(_processors(values), MAX_PROCESSORS) for _, values in rows), default=1)
    cores = max(1, header.get("MaxProcs") or header.get("MaxNodes") or widest)
    nodes = min(cores, max(1, header.get("MaxNodes", 1)))
    cores_per_agent, rest = divmod(cores, nodes)
    jobs: list[Job] = []
    skipped: Counter[str] = Counter()
    known: set[str] = set()
    for number, values in rows:
        try:
            reason = _skip_reason(values)
            if reason:
                skipped[reason] += 1
            else:
                job = _job(values, cores_per_agent)
                check_new(FIELDS[0], job.id, known)
                jobs.append(job)
        except RowError as error:
            invalid_rows.append(InvalidRow(file, number, error.column, str(error)))
    jobs.sort(key=lambda job: job.submitted)
    invalid_rows.sort(key=lambda row: row.row)
    # If the cores do not divide evenly, the first agents have one more core each.
    agents = [_agent(number, cores_per_agent + (number < rest)) for number in range(nodes)]
    return Workload(tuple(jobs), tuple(agents), tuple(invalid_rows), dict(skipped))


def _note_header(header: dict[str, int], text: str) -> None:
    match = _HEADER.fullmatch(text)
    value = match["value"].split() if match else []
    number = read_whole(value[0]) if value else None
    if match and number is not None:
        header[match["name"]] = number


def _numbers(text: str) -> list[float]:
    parts = text.split()
    if len(parts) != len(FIELDS):
        raise RowError(
            FIELDS[min(len(parts), len(FIELDS) - 1)],
            f"{len(parts)} numbers; a job has {len(FIELDS)}",
        )
    numbers = []
    for name, part in zip(FIELDS, parts, strict=True):
        read = read_decimal(part.removeprefix("-"))
        if read is None:
            raise RowError(name, f"{shown(part)!r} is not a number")
        number = float(-read if part.startswith("-") else read)
        if not UNKNOWN <= number < 2**53:
            raise RowError(name, f"{part} is neither a number of 0 or more nor -1 (unknown)")
        numbers.append(number)
    return numbers


def _processors(values: list[float]) -> int:
    requested, allocated = int(values[7]), int(values[4])
    return requested if requested > 0 else allocated


def _skip_reason(values: list[float]) -> str:
    if values[10] in PARTS:
        return "part of an interrupted job"
    if values[10] == CANCELLED and values[3] <= 0:
        return "cancelled before it ran"
    if values[3] == UNKNOWN:
        return "run time unknown"
    return ""


def _job(values: list[float], cores_per_agent: int) -> Job:
    processors = _processors(values)
    if processors > MAX_PROCESSORS:
        raise RowError(FIELDS[7], f"{processors} processors; at most {MAX_PROCESSORS} are replayed")
    if processors < 1:
        raise RowError(FIELDS[7], "neither requested nor allocated processors are known")
    if values[1] < 0:
        raise RowError(FIELDS[1], "a job without a submit time cannot be replayed")
    kernels = fewest_kernels(processors, cores_per_agent)
    limit = int(values[8]) if values[8] > 0 else None
    ran = max(1, int(values[3]))
    return Job(
        id=str(int(values[0])),
        submitted=int(values[1]),
        # Use at most the limit: in some records, jobs ran slightly longer.
        seconds=ran if limit is None else min(ran, limit),
        slots=ResourceSlots({"cpu": processors // kernels * _MILLICORES}),
        user=_name(values[11]),
        project=_name(values[12]),
        kernels=kernels,
        mode=Mode.MULTI_NODE if kernels > 1 else Mode.SINGLE_NODE,
        limit=limit,
        kind=f"{int(values[13])}/{int(values[14])}",
    )


def _name(number: float) -> str:
    return "" if number == UNKNOWN else str(int(number))


def fewest_kernels(processors: int, cores_per_agent: int) -> int:
    """Return the smallest number of equal kernels of a job that fit on one agent each."""
    # Divisors come in pairs, so the cost grows with the square root of ``processors``.
    divisors = (n for n in range(1, isqrt(processors) + 1) if processors % n == 0)
    pairs = chain.from_iterable((n, processors // n) for n in divisors)
    return min(n for n in pairs if processors // n <= cores_per_agent)


def _agent(number: int, cores: int) -> AgentState:
    return AgentState(
        id=f"node-{number:05}",
        resource_group=GROUP,
        architecture=ARCHITECTURE,
        engine=ENGINE,
        capacity={"cpu": cores * _MILLICORES, "mem": _NO_MEMORY},
    )
