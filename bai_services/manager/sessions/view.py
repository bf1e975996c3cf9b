"""Build the API representation of a session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from bai_services.core.durations import format_duration
from bai_services.core.resources import MEM, format_amount
from bai_services.core.sessions.dependencies import Dependency
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.idle import Idleness, idleness_of
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.db.scheduling.queue import WaitState
from bai_services.db.sessions.rows import CallbackState, SessionRow, SessionView

from ..settings import Settings
from .devices import devices_of, enforcement_of
from .requests.requests import PREOPEN_PORTS
from .requests.secret_environ import masked, secret_names

# Fields that may contain secrets of the owner, with the values that other callers receive.
_PRIVATE: dict[str, Any] = {"environ": {}, "startup_command": None, "callback": None}

MOUNT_FIELDS = ("vfolder", "vfolder_id", "path", "permission")


def describe(
    view: SessionView, settings: Settings, now: datetime, state: WaitState | None = None
) -> dict[str, Any]:
    """Return the session in the format of docs/rest-reference.md.

    ``state`` replaces the stored wait state of a pending session, which may be older.
    """
    idleness = _idleness(view)
    row = view.row
    position = view.queue_position if state is None else state.position
    estimate = row.estimate if state is None else state.estimate
    is_pending = row.status == "PENDING"
    main = view.kernels[0] if view.kernels else None
    return {
        **_request_of(row),
        "status": row.status,
        "status_info": row.status_info,
        "reasons": row.reasons,
        "notices": [*row.notices, *_warnings(idleness, now)],
        "result": row.result,
        "exit_code": row.exit_code,
        "lifetime": _lifetime(view),
        "ends_at": _text(_end_of(view)),
        "idle_since": _text(None if idleness is None else idleness.since),
        "idle_ends_at": _text(None if idleness is None else idleness.ends_at),
        "is_draining": view.is_draining,
        "dependencies": [dependency_of(item) for item in view.dependencies],
        "callback": _callback(view),
        "allocations": _allocations(view),
        "progress": (main.progress if main else None) or {},
        "usage": (main.usage if main else None) or {},
        "devices": devices_of(view.kernels),
        "enforcement": enforcement_of(view.kernels),
        "kernels": _kernels(view),
        "kernel_id": main.id if main else None,
        "agent": main.agent_id if main else None,
        "queue_position": position if is_pending else None,
        "estimated_start": estimate if is_pending else None,
        "created_at": _text(row.created_at),
        "scheduled_at": _text(row.scheduled_at),
        "started_at": _text(row.started_at),
        "terminated_at": _text(row.terminated_at),
        "started_by": row.started_by,
        "hub_user": row.hub_user,
        "hub_server": row.hub_server,
        "url": url_of(settings, row.hub_user, row.hub_server),
        "page": f"{settings.base_url.rstrip('/')}/sessions/{row.id}",
        "hidden_fields": [],
    }


def without_private(session: dict[str, Any]) -> dict[str, Any]:
    """Return a session with the private fields replaced by empty values."""
    return {**session, **_PRIVATE, "hidden_fields": sorted(_PRIVATE)}


def _request_of(row: SessionRow) -> dict[str, Any]:
    """Return the owner and the requested values of a session."""
    return {
        "id": row.id,
        "name": row.name,
        "type": row.type,
        "owner": row.owner,
        "owner_id": row.owner_id,
        "domain": row.domain,
        "project": row.project,
        "project_id": row.project_id,
        "resource_group": row.resource_group,
        "image": row.image,
        "architecture": row.architecture,
        "requested": row.requested_slots.format(),
        "cluster_size": row.cluster_size,
        "cluster_mode": row.cluster_mode,
        "shared_memory": format_amount(MEM, row.shared_memory_bytes),
        "priority": row.priority,
        "mounts": [mount_json(mount) for mount in row.mounts],
        "environ": {
            name: text for name, text in masked(row.environ).items() if name != PREOPEN_PORTS
        },
        "secret_environ": secret_names(row.environ),
        "preopen_ports": [int(n) for n in row.environ.get(PREOPEN_PORTS, "").split(",") if n],
        "startup_command": row.startup_command,
        "starts_at": _text(row.starts_at),
        "batch_timeout": row.batch_timeout_seconds,
    }


def _lifetime(view: SessionView) -> dict[str, int] | None:
    limit = view.time_limit
    if limit is None:
        return None
    return {
        "seconds": limit.seconds,
        "added_seconds": limit.added_seconds,
        "addable_seconds": limit.addable_seconds,
    }


def _end_of(view: SessionView) -> datetime | None:
    """Return when the time limits end a running session; None without a limit."""
    row, limit = view.row, view.time_limit
    if row.status != "RUNNING" or row.started_at is None:
        return None
    limits = [
        seconds for seconds in (limit and limit.seconds, row.batch_timeout_seconds) if seconds
    ]
    return row.started_at + timedelta(seconds=min(limits)) if limits else None


def _idleness(view: SessionView) -> Idleness | None:
    row = view.row
    return idleness_of(
        SessionType(row.type),
        row.started_at if row.status == "RUNNING" else None,
        row.used_at,
        row.use_heard_at,
        view.idle_timeout_seconds,
    )


def _warnings(idleness: Idleness | None, now: datetime) -> list[str]:
    if idleness is None or not idleness.is_warning_due(now):
        return []
    limit = format_duration((idleness.ends_at - idleness.since).total_seconds())
    return [
        f"{EndReason.IDLE_TIMEOUT}: unused since {idleness.since.isoformat(timespec='seconds')}; "
        f"the session is stopped after {limit} without use. Use it or keep it alive"
    ]


def _callback(view: SessionView) -> dict[str, Any] | None:
    state = view.callback or CallbackState()
    if view.row.callback_url is None:
        return None
    return {
        "url": view.row.callback_url,
        "is_open": state.is_open,
        "delivered": state.delivered,
        "given_up": state.given_up,
        "tries": state.tries,
        "next_at": _text(state.next_at) if state.tries else None,
        "last_at": _text(state.last_at),
        "last_error": state.last_error,
    }


def _allocations(view: SessionView) -> list[dict[str, Any]]:
    return [
        {
            "agent": a.agent_id,
            "device": a.device_id,
            "slot": a.slot,
            "amount": format_amount(a.slot, a.amount),
            "is_simulated": a.is_simulated,
        }
        for a in view.allocations
    ]


def _kernels(view: SessionView) -> list[dict[str, Any]]:
    return [
        {
            "id": kernel.id,
            "role": kernel.role,
            "hostname": kernel.hostname,
            "agent": kernel.agent_id,
            "container_id": kernel.container_id,
            "progress": kernel.progress or {},
            "usage": kernel.usage or {},
        }
        for kernel in view.kernels
    ]


def dependency_of(item: Dependency) -> dict[str, Any]:
    return {"id": item.id, "name": item.name, "status": item.status, "result": item.result}


def url_of(settings: Settings, user: str, server: str) -> str:
    """Return the path of a session's server behind the proxy."""
    path = f"{settings.hub_base_url.rstrip('/')}/user/{quote(user, safe='')}/"
    return f"{path}{quote(server, safe='')}/" if server else path


def mount_json(mount: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mount of a session's row as the API shows it."""
    return {name: mount.get(name) for name in MOUNT_FIELDS} | {"subpath": mount.get("subpath", "")}


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
