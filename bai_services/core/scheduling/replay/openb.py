"""Read the openb format: a node list and a pod list as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ...cluster.devices import Device
from ...errors import InvalidRequest
from ...resources import ResourceSlots
from ..placement import AgentState
from .workload import (
    ARCHITECTURE,
    ENGINE,
    GROUP,
    InvalidRow,
    Job,
    RowError,
    Workload,
    check_new,
    whole,
)

MIB = 2**20
# Required columns of a node list. The column "model" is optional.
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
# Required columns of a pod list. Optional columns and their defaults: "gpu_spec" (any model),
# "creation_time" (0), "scheduled_time" (creation_time), "deletion_time" (scheduled_time plus
# DEFAULT_RUN_SECONDS), "qos" ("none").
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
DEFAULT_RUN_SECONDS = 3600
_MAX_DEVICES = 64

Row = Mapping[str, str | None]
Parsed = TypeVar("Parsed")


def read_nodes(lines: Iterable[str], file: str) -> tuple[list[AgentState], list[InvalidRow]]:
    """Return the agents of a node list, sorted by name, and its invalid rows.

    Raises
    ------
    InvalidRequest
        If columns of a node list are missing, or the file is not valid CSV.
    """
    agents, invalid_rows = _read(lines, file, NODE_COLUMNS, _agent)
    return sorted(agents, key=lambda agent: agent.id), invalid_rows


def read_pods(lines: Iterable[str], file: str) -> Workload:
    """Return the workload of a pod list.

    A pod ran from ``scheduled_time`` (default: ``creation_time``) to ``deletion_time``; its run
    time has no limit. In a list without times, all pods are created at second 0 and run for
    ``DEFAULT_RUN_SECONDS``. Without ``gpu_spec``, any GPU model is accepted.

    Raises
    ------
    InvalidRequest
        If columns of a pod list are missing, or the file is not valid CSV.
    """
    jobs, invalid_rows = _read(lines, file, POD_COLUMNS, _job)
    return Workload(
        tuple(sorted(jobs, key=lambda job: (job.submitted, job.id))), (), tuple(invalid_rows)
    )


def _agent(row: Row) -> AgentState:
    name = _text(row, "sn")
    count = whole(row, "gpu")
    if count > _MAX_DEVICES:
        raise RowError("gpu", f"{count} devices on one node; at most {_MAX_DEVICES}")
    model = row.get("model") or ""
    return AgentState(
        id=name,
        resource_group=GROUP,
        architecture=ARCHITECTURE,
        engine=ENGINE,
        capacity={"cpu": whole(row, "cpu_milli"), "mem": whole(row, "memory_mib") * MIB},
        devices=tuple(Device(f"{name}/{i}", "cuda", model=model) for i in range(count)),
    )


def _job(row: Row) -> Job:
    count, share = whole(row, "num_gpu"), whole(row, "gpu_milli")
    slots = {"cpu": whole(row, "cpu_milli"), "mem": whole(row, "memory_mib") * MIB}
    if count:
        slots.update(_devices(count, share))
    created = whole(row, "creation_time") if "creation_time" in row else 0
    started = whole(row, "scheduled_time") if row.get("scheduled_time") else created
    ended = started + DEFAULT_RUN_SECONDS
    if "deletion_time" in row:
        ended = whole(row, "deletion_time")
    if ended < started:
        raise RowError("deletion_time", f"{ended} is before the start of the pod ({started})")
    models = tuple(filter(None, (row.get("gpu_spec") or "").split("|")))
    service = row.get("qos") or "none"
    return Job(
        id=_text(row, "name"),
        submitted=created,
        seconds=max(1, ended - started),
        slots=ResourceSlots(slots),
        user=service,
        kind=f"{service}/{count}",
        device_models=models,
    )


def _devices(count: int, share: int) -> dict[str, int]:
    if share == 1000:
        return {"cuda.device": count}
    if count > 1 or not 1 <= share < 1000:
        raise RowError("gpu_milli", f"it is {share}; write 1000, or 1 to 999 with num_gpu 1")
    return {"cuda.shares": share}


def _text(row: Row, column: str) -> str:
    text = (row[column] or "").strip()
    if not text:
        raise RowError(column, "it is empty")
    return text


def _column_names(rows: csv.DictReader[str], file: str) -> Sequence[str]:
    try:
        return rows.fieldnames or ()
    except csv.Error as error:
        raise InvalidRequest(f"{file}, row 1 is not valid CSV: {error}") from None


def _records(rows: csv.DictReader[str], file: str) -> Iterator[Row]:
    try:
        yield from rows
    except csv.Error as error:
        raise InvalidRequest(f"{file}, row {rows.line_num} is not valid CSV: {error}") from None


def _read(
    lines: Iterable[str], file: str, columns: Sequence[str], make: Callable[[Row], Parsed]
) -> tuple[list[Parsed], list[InvalidRow]]:
    rows = csv.DictReader(lines)
    names = _column_names(rows, file)
    missing = [column for column in columns if column not in names]
    if missing:
        raise InvalidRequest(
            f"{file} has no column {', '.join(missing)}; its first row must name the columns "
            f"{', '.join(columns)}"
        )
    valid: list[Parsed] = []
    invalid_rows: list[InvalidRow] = []
    known: set[str] = set()
    for row in _records(rows, file):
        try:
            parsed = make(row)
            check_new(columns[0], row[columns[0]] or "", known)
            valid.append(parsed)
        except RowError as error:
            invalid_rows.append(InvalidRow(file, rows.line_num, error.column, str(error)))
    return valid, invalid_rows
