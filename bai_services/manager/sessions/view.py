"""Build the view of a session that the API returns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.duration_text import format_duration
from bai_services.core.resources import MEM, format_amount
from bai_services.core.scheduling.preemption.records import SessionPreemption
from bai_services.core.scheduling.preemption.texts import preemption_text
from bai_services.core.sessions.idle import Idleness, idleness_of
from bai_services.core.sessions.idle_checks.records import SessionEndRule
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.core.sessions.records import (
    Session,
    SessionAllocation,
    SessionCallback,
    SessionKernel,
    SessionLifetime,
    SessionMount,
)
from bai_services.core.sessions.schedules.records import STOP_NOTICE
from bai_services.db.scheduling.preemption import PreemptionWarning
from bai_services.db.scheduling.queue import WaitState
from bai_services.db.sessions.rows import CallbackState, SessionRow, SessionView

from ..settings import Settings
from .devices import devices_of, enforcement_of
from .idle_checks.results import check_warnings, idle_checks_of
from .requests.requests import PREOPEN_PORTS
from .requests.secret_environ import masked, secret_names


def describe(
    view: SessionView, settings: Settings, now: datetime, state: WaitState | None = None
) -> Session:
    """Return the session as its owner sees it.

    ``state`` is the current wait state of a pending session; None: use the stored one.
    """
    idleness = _idleness(view)
    row = view.row
    checks = idle_checks_of(view.idle_checks, row.requested_slots, row.started_at, now)
    position = view.queue_position if state is None else state.position
    estimate = row.estimate if state is None else state.estimate
    is_pending = row.status is Status.PENDING
    main = view.kernels[0] if view.kernels else None
    environ = {name: text for name, text in masked(row.environ).items() if name != PREOPEN_PORTS}
    return Session(
        id=row.id,
        name=row.name,
        type=row.type,
        owner=row.owner,
        owner_id=row.owner_id,
        domain=row.domain,
        project=row.project,
        project_id=row.project_id,
        resource_group=row.resource_group,
        image=row.image,
        architecture=row.architecture,
        requested=row.requested_slots,
        cluster_size=row.cluster_size,
        cluster_mode=row.cluster_mode,
        shared_memory=format_amount(MEM, row.shared_memory_bytes),
        priority=row.priority,
        mounts=[mount_of(mount) for mount in row.mounts],
        environ=environ,
        secret_environ=secret_names(row.environ),
        preopen_ports=preopened_ports(row.environ),
        startup_command=row.startup_command,
        starts_at=row.starts_at,
        batch_timeout=row.batch_timeout_seconds,
        status=row.status,
        status_info=row.status_info,
        status_coded=_status_coded(row),
        reasons=row.reasons,
        notices=[
            *row.notices,
            *_warnings(view, idleness, now),
            *check_warnings(checks),
            *_stop_notices(view, now),
        ],
        result=row.result,
        exit_code=row.exit_code,
        lifetime=_lifetime(view),
        ends_at=_end_of(view),
        idle_since=None if idleness is None else idleness.since,
        idle_ends_at=None if idleness is None else idleness.ends_at,
        idle_checks=checks,
        end_rule=_end_rule(view, idleness),
        preemption=_preemption(view),
        job_priority=row.job_priority,
        is_preemptible=row.is_preemptible,
        restart_count=row.restart_count,
        is_draining=view.is_draining,
        dependencies=view.dependencies,
        callback=_callback(view),
        allocations=_allocations(view),
        progress=(main.progress if main else None) or {},
        usage=(main.usage if main else None) or {},
        devices=devices_of(view.kernels),
        enforcement=enforcement_of(view.kernels),
        kernels=_kernels(view),
        kernel_id=main.id if main else None,
        agent=main.agent_id if main else None,
        queue_position=position if is_pending else None,
        estimated_start=estimate if is_pending else None,
        created_at=row.created_at,
        scheduled_at=row.scheduled_at,
        started_at=row.started_at,
        terminated_at=row.terminated_at,
        started_by=row.started_by,
        hub_user=row.hub_user,
        hub_server=row.hub_server,
        url=url_of(settings, row.hub_user, row.hub_server, view.proxy_address),
        page=f"{settings.base_url.rstrip('/')}/sessions/{row.id}",
        resize=view.resize,
        elasticity=view.elasticity,
    )


def _status_coded(row: SessionRow) -> dict[str, Any] | None:
    """Return the coded text of ``status_info``, which is the first reason of a pending session."""
    return row.reasons[0].get("coded") if row.reasons else row.status_coded


def _lifetime(view: SessionView) -> SessionLifetime | None:
    limit = view.time_limit
    if limit is None:
        return None
    return SessionLifetime(limit.seconds, limit.added_seconds, limit.addable_seconds)


def _end_of(view: SessionView) -> datetime | None:
    """Return when the lifetime limit or the batch timeout ends a session.

    Return None if the session has neither of them or is not running.
    """
    row, limit = view.row, view.time_limit
    if row.status is not Status.RUNNING or row.started_at is None:
        return None
    limits = [
        seconds for seconds in (limit and limit.seconds, row.batch_timeout_seconds) if seconds
    ]
    return row.started_at + timedelta(seconds=min(limits)) if limits else None


def _idleness(view: SessionView) -> Idleness | None:
    row = view.row
    return idleness_of(
        SessionType(row.type),
        row.started_at if row.status is Status.RUNNING else None,
        row.used_at,
        row.use_heard_at,
        0 if view.idle_timeout is None else view.idle_timeout.seconds,
        None if view.idle_timeout is None else view.idle_timeout.limited_at,
        row.use_known_since,
    )


def _warnings(view: SessionView, idleness: Idleness | None, now: datetime) -> list[str]:
    timeout = view.idle_timeout
    if timeout is None or idleness is None or not idleness.is_warning_due(now):
        return []
    limit = format_duration(timeout.seconds)
    return [
        f"idle timeout: unused since {idleness.since.isoformat(timespec='seconds')}; "
        f"the session is stopped after {limit} without use. Use it or keep it alive"
    ]


def _preemption(view: SessionView) -> SessionPreemption | None:
    warning = view.preemption
    if warning is None:
        return None
    text = _preemption_text(view.row, warning)
    return SessionPreemption(
        stops_at=warning.stops_at, mode=warning.mode, reason=str(text), coded=text.as_json()
    )


def _preemption_text(row: SessionRow, warning: PreemptionWarning) -> CodedText:
    return preemption_text(warning.rule, warning.resource_group, row.priority)


def _stop_notices(view: SessionView, now: datetime) -> list[str]:
    stop = view.scheduled_stop
    if stop is None or stop.stops_at - now > STOP_NOTICE:
        return []
    at = stop.stops_at.isoformat(timespec="seconds")
    return [f"scheduled stop: schedule {stop.schedule} stops the session at {at}"]


def _end_rule(view: SessionView, idleness: Idleness | None) -> SessionEndRule | None:
    """Return the first limit that ends a running session, with a description of the rule."""
    row, limit, timeout = view.row, view.time_limit, view.idle_timeout
    if row.status is not Status.RUNNING or row.started_at is None:
        return None
    ends: list[tuple[datetime, CodedText]] = []
    if limit is not None:
        ends.append((row.started_at + timedelta(seconds=limit.seconds), limit.rule))
    if row.batch_timeout_seconds:
        rule = TextTemplate.BATCH_TIMEOUT.text(maximum_seconds=row.batch_timeout_seconds, name="")
        ends.append((row.started_at + timedelta(seconds=row.batch_timeout_seconds), rule))
    if timeout is not None and idleness is not None:
        rule = TextTemplate.IDLE_TIMEOUT.text(maximum_seconds=timeout.seconds, name=timeout.policy)
        ends.append((idleness.ends_at, rule))
    if (preemption := view.preemption) is not None:
        ends.append((preemption.stops_at, _preemption_text(row, preemption)))
    if (spent := view.budget_stop) is not None:
        ends.append((spent.stops_at, TextTemplate.BUDGET_STOP.text(name=spent.project)))
    if (stop := view.scheduled_stop) is not None:
        ends.append((stop.stops_at, TextTemplate.SCHEDULED_STOP.text(name=stop.schedule)))
    ends += [
        (check.stored.ends_at, CodedText.from_json(check.stored.rule))
        for check in view.idle_checks
        if check.stored.ends_at is not None
        and check.stored.rule is not None
        and not check.stored.is_dry_run
    ]
    if not ends:
        return None
    ends_at, first = min(ends, key=lambda end: end[0])
    return SessionEndRule(ends_at, str(first), first.as_json())


def _callback(view: SessionView) -> SessionCallback | None:
    state = view.callback or CallbackState()
    if view.row.callback_url is None:
        return None
    return SessionCallback(
        url=view.row.callback_url,
        is_open=state.is_open,
        delivered=state.delivered,
        given_up=state.given_up,
        tries=state.tries,
        next_at=state.next_at if state.tries else None,
        last_at=state.last_at,
        last_error=state.last_error,
    )


def _allocations(view: SessionView) -> list[SessionAllocation]:
    return [
        SessionAllocation(
            a.agent_id, a.device_id, a.slot, format_amount(a.slot, a.amount), a.is_simulated
        )
        for a in view.allocations
    ]


def _kernels(view: SessionView) -> list[SessionKernel]:
    return [
        SessionKernel(
            id=kernel.id,
            role=kernel.role,
            hostname=kernel.hostname,
            agent=kernel.agent_id,
            container_id=kernel.container_id,
            progress=kernel.progress or {},
            usage=kernel.usage or {},
        )
        for kernel in view.kernels
    ]


def preopened_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the requested ports of a session, which are stored in its environment."""
    return [int(number) for number in environ.get(PREOPEN_PORTS, "").split(",") if number]


def url_of(settings: Settings, user: str, server: str, proxy_address: str) -> str:
    """Return the URL of a session's server behind the proxy; a path behind the proxy of the Hub.

    ``proxy_address``: the proxy address of the session's resource group, or "".
    """
    base = proxy_address + settings.hub_base_url.rstrip("/")
    path = f"{base}/user/{quote(user, safe='')}/"
    return f"{path}{quote(server, safe='')}/" if server else path


def mount_of(mount: Mapping[str, Any]) -> SessionMount:
    """Return a mount that is stored in a session's row."""
    return SessionMount(
        vfolder=mount["vfolder"],
        vfolder_id=mount["vfolder_id"],
        subpath=mount.get("subpath", ""),
        path=mount["path"],
        permission=mount["permission"],
    )
