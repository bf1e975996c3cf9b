"""Read a workload from the history of a hub: sessions and agents, as listed by the REST API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...cluster.devices import Device
from ...errors import InvalidRequest
from ...resources import SHARE_UNIT, ResourceSlots
from ...sessions.kernel_group import MAX_KERNELS
from ...user_input import shown
from ..placement import AgentState, Mode
from .workload import ARCHITECTURE, ENGINE, GROUP, InvalidRow, Job, RowError, Workload, check_new

_MAX_NUMBER = {"cluster_size": MAX_KERNELS, "batch_timeout": 2**31, "priority": 2**31}
MAX_NUMA_NODE = 65535
_FORMAT = 'write {"sessions": […], "agents": […]} with lists from the REST API'


def read_history(document: Any, file: str, group: str | None = None) -> Workload:
    """Return the workload of one resource group of a hub.

    The document is ``{"sessions": [...], "agents": [...]}``, or only the sessions: a list, or a
    page with ``items``. A session that is still running is replayed as if it ended at the last
    recorded time of any replayed session. A session that never started is skipped.

    Raises
    ------
    InvalidRequest
        If the document does not have this form, or contains several groups while ``group`` is None.
    """
    sessions, agents = _parts(document, file)
    groups = sorted({str(s.get("resource_group", "")) for s in sessions if isinstance(s, Mapping)})
    if group is None and len(groups) > 1:
        raise InvalidRequest(
            f"{file} has sessions of the resource groups {', '.join(groups)}; choose one with "
            "--resource-group"
        )
    chosen = group if group is not None else next(iter(groups), "")
    invalid_rows: list[InvalidRow] = []
    skipped: Counter[str] = Counter()
    started_sessions: list[_Session] = []
    known_sessions: set[str] = set()
    for number, row in enumerate(sessions, start=1):
        try:
            session = _session(row)
            if session.group != chosen:
                skipped["of another resource group"] += 1
            elif session.started is None:
                skipped["never started"] += 1
            else:
                check_new("id", row["id"], known_sessions)
                started_sessions.append(session)
        except RowError as error:
            invalid_rows.append(InvalidRow(file, number, error.column, str(error)))
    states = []
    known_agents: set[str] = set()
    for number, row in enumerate(agents, start=1):
        try:
            if _text(row, "resource_group") == chosen:
                state = _agent(row)
                check_new("id", state.id, known_agents)
                states.append(state)
        except RowError as error:
            invalid_rows.append(InvalidRow(f"{file} (agents)", number, error.column, str(error)))
    return Workload(_jobs(started_sessions), tuple(states), tuple(invalid_rows), dict(skipped))


def _parts(document: Any, file: str) -> tuple[Sequence[Any], Sequence[Any]]:
    parts = document if isinstance(document, Mapping) else {"sessions": document}
    sessions = parts.get("sessions", parts.get("items"))
    agents = parts.get("agents", [])
    if not isinstance(sessions, list) or not isinstance(agents, list):
        raise InvalidRequest(f"{file} is not a history of a hub: {_FORMAT}")
    return sessions, agents


@dataclass(frozen=True, slots=True)
class _Session:
    row: Mapping[str, Any]
    group: str
    created: datetime
    started: datetime | None
    ended: datetime | None
    slots: ResourceSlots


def _session(row: Any) -> _Session:
    if not isinstance(row, Mapping):
        raise RowError("id", "the row is not a JSON object")
    created = _time(row, "created_at")
    started, ended = _time(row, "started_at"), _time(row, "terminated_at")
    if created is None:
        raise RowError("created_at", "it is missing")
    if started is not None and started < created:
        raise RowError("started_at", "it is before created_at")
    if started is not None and ended is not None and ended < started:
        raise RowError("terminated_at", "it is before started_at")
    _text(row, "id")
    for column, most in _MAX_NUMBER.items():
        _check_number(row, column, most)
    slots = _slots(row, "requested")
    return _Session(row, _text(row, "resource_group"), created, started, ended, slots)


def _jobs(sessions: Sequence[_Session]) -> tuple[Job, ...]:
    """Return the jobs of started sessions, in the order of their creation."""
    times = [t for s in sessions for t in (s.created, s.started, s.ended) if t is not None]
    if not times:
        return ()
    origin, last = min(times), max(times)
    jobs = [_job(session, origin, last) for session in sessions]
    return tuple(sorted(jobs, key=lambda job: job.submitted))


def _job(session: _Session, origin: datetime, last: datetime) -> Job:
    row, started = session.row, session.started or session.created
    size = row.get("cluster_size") or 1
    seconds = max(1, int(((session.ended or last) - started).total_seconds()))
    limit = row.get("batch_timeout")
    image = str(row.get("image", "")).rpartition(":")[0] or str(row.get("image", ""))
    return Job(
        id=row["id"],
        submitted=int((session.created - origin).total_seconds()),
        seconds=seconds if limit is None else min(seconds, limit),
        slots=session.slots,
        user=str(row.get("owner", "")),
        project=str(row.get("project", "")),
        domain=str(row.get("domain", "")),
        kernels=size,
        mode=Mode.MULTI_NODE if row.get("cluster_mode") == Mode.MULTI_NODE else Mode.SINGLE_NODE,
        limit=limit,
        priority=row.get("priority"),
        kind=f"{row.get('type', '')}/{image}",
        architecture=str(row.get("architecture") or ARCHITECTURE),
    )


def _agent(row: Mapping[str, Any]) -> AgentState:
    devices = row.get("devices") or []
    if not isinstance(devices, list):
        raise RowError("devices", "it is not a list")
    return AgentState(
        id=_text(row, "id"),
        resource_group=GROUP,
        architecture=str(row.get("architecture") or ARCHITECTURE),
        engine=str(row.get("engine") or ENGINE),
        capacity=dict(_slots(row, "slots")),
        devices=tuple(map(_device, devices)),
    )


def _device(row: Any) -> Device:
    family = _text(row, "family")
    shares = _slots({"capacity": {f"{family}.shares": row.get("capacity", "1")}}, "capacity")
    return Device(
        _text(row, "id"),
        family,
        capacity=shares.get(f"{family}.shares", SHARE_UNIT),
        is_healthy=bool(row.get("is_healthy", True)),
        model=str(row.get("model") or ""),
        numa_node=_numa_node(row),
    )


def _numa_node(row: Mapping[str, Any]) -> int | None:
    """Return the NUMA node of a device; -1 (unknown to the driver) is returned as None."""
    if row.get("numa_node") == -1:
        return None
    _check_number(row, "numa_node", MAX_NUMA_NODE)
    return row.get("numa_node")


def _slots(row: Mapping[str, Any], column: str) -> ResourceSlots:
    value = row.get(column)
    if not isinstance(value, Mapping):
        raise RowError(column, "it is not a map of slots to quantities")
    try:
        return ResourceSlots.parse(value)
    except InvalidRequest as error:
        raise RowError(column, str(error)) from None


def _text(row: Any, column: str) -> str:
    value = row.get(column) if isinstance(row, Mapping) else None
    if not isinstance(value, str) or not value:
        raise RowError(column, "it must be a non-empty string")
    return value


def _check_number(row: Mapping[str, Any], column: str, most: int) -> None:
    value = row.get(column)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 <= value <= most):
        raise RowError(column, f"{shown(value)!r} is not a whole number from 0 to {most}")


def _time(row: Mapping[str, Any], column: str) -> datetime | None:
    value = row.get(column)
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise RowError(column, f"{shown(value)!r} is not a time") from None
    if time.tzinfo is None:
        raise RowError(column, f"{shown(value)!r} has no time zone")
    return time
