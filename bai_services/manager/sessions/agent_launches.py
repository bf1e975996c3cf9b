"""Start and stop sessions without a Hub server, by orders to their agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bai_services import tracing
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import BaiError, Conflict, Forbidden, NotFound, Unavailable
from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.lifecycle import ENDED, Event, Result, Status
from bai_services.db.sessions.kernels import KernelStore, KernelWork, LaunchFacts
from bai_services.db.sessions.rows import SessionKernels
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.transitions import Move, TransitionValues

from ..clock import Clock
from . import session_spans
from .ends import SessionEnds
from .launch import LaunchPlans
from .lifecycle import Lifecycle

LAUNCH, TERMINATE, EXIT = "launch", "terminate", "exit"
KINDS = frozenset({LAUNCH, TERMINATE, EXIT})


class AgentLaunches:
    """Derives the orders from the database, and applies the reports to the sessions.

    Orders are repeated until the status of the session shows that they were executed. The agent
    starts each attempt at most once (``core/sessions/agent_launch.py``).
    """

    def __init__(
        self,
        store: KernelStore,
        sessions: SessionStore,
        plans: LaunchPlans,
        lifecycle: Lifecycle,
        ends: SessionEnds,
        clock: Clock,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._plans = plans
        self._lifecycle = lifecycle
        self._ends = ends
        self._clock = clock

    async def orders(
        self, work: Sequence[KernelWork], is_due: Callable[[str], bool]
    ) -> list[dict[str, Any]]:
        """Return the orders for these kernels; those that are not due have no plan."""
        orders, due = [], {}
        for kernel in work:
            kind = LAUNCH if kernel.status is Status.PREPARED else TERMINATE
            order = {
                "id": f"{kind}-{kernel.kernel_id}-{kernel.restart_count}",
                "kind": kind,
                "session_id": kernel.session_id,
                "kernel_id": kernel.kernel_id,
                "hostname": kernel.hostname,
                "attempt": kernel.restart_count,
            }
            if kind == LAUNCH and is_due(str(order["id"])):
                due[kernel.session_id] = order
            else:
                orders.append(order)
        plans: dict[str, dict[str, Any]] = {}
        facts = await self._plans.facts_of(sorted(due)) if due else {}
        found = await self._sessions.all_with_kernels(sorted(due)) if due else {}
        for view in found.values():
            if (plan := await self._plan(view, facts.get(view.row.id))) is not None:
                plans[view.row.id] = {"plan": plan}
                if (trace := session_spans.context_of(view.row)) is not None:
                    plans[view.row.id][tracing.HEADER] = trace
        if plans:
            # A session that was stopped in the meantime is not started.
            for session_id in await self._store.mark_all_launched(sorted(plans), self._clock()):
                orders.append({**due[session_id], **plans[session_id]})
        return orders

    async def _plan(self, view: SessionKernels, facts: LaunchFacts | None) -> dict[str, Any] | None:
        """Return the launch plan; end the session and return None if it cannot be started."""
        row = view.row
        try:
            return (await self._plans.plan(view, facts)).to_json()
        except (Forbidden, Conflict, NotFound, Unavailable) as error:
            # A kernel may already run if the order was sent before.
            is_sent = view.kernels[0].launched_at is not None
            event = Event.STOP_REQUESTED if is_sent else Event.FAILED
            await self._lifecycle.try_apply(
                row.id, event, error.message, result=Result.FAILURE, expected=Status.PREPARED
            )
            return None

    async def report(
        self, agent_id: str, reports: Sequence[Mapping[str, Any]]
    ) -> list[bool | BaiError]:
        """Apply reports on orders and on ends of kernels; ignore outdated reports.

        No two reports belong to the same session. Return for each report whether its session has
        ended, so that the agent may remove the kernel; NotFound if there is no such session.
        """
        ids = sorted(str(report.get("session_id")) for report in reports)
        found = await self._sessions.all_with_kernels(ids)
        moves: list[Move] = []
        failed: dict[str, SessionEnd] = {}
        ended: dict[str, SessionEnd] = {}
        for report in reports:
            view = found.get(str(report.get("session_id")))
            if view is None or not _is_current(view, agent_id, report):
                continue
            key, is_done = view.row.id, report.get("state") == "done"
            if report.get("kind") != LAUNCH:
                if is_done:
                    ended[key] = _end_of(report)
            elif is_done:
                container_id = str(report.get("container_id") or "")
                facts = TransitionValues(container_id=container_id)
                moves.append(Move(key, Event.STARTED, facts))
            elif view.row.status is Status.PREPARED:
                failed[key] = _failed_start(report)
        if moves:
            await self._lifecycle.apply_all(moves)
        rows = await self._ends.record_all({**failed, **ended}) if failed or ended else {}
        results: list[bool | BaiError] = []
        for report in reports:
            key = str(report.get("session_id"))
            if key not in found:
                results.append(NotFound(f"there is no session {key}", session=key))
            else:
                results.append(key in ended and rows[key].status in ENDED)
        return results


def _is_current(view: SessionKernels, agent_id: str, report: Mapping[str, Any]) -> bool:
    """Return whether a report is about the current attempt of a session on that agent."""
    row, kernel = view.row, view.kernels[0]
    return (
        row.started_by == BY_AGENT
        and row.restart_count == report.get("attempt")
        and (kernel.id, kernel.agent_id) == (report.get("kernel_id"), agent_id)
    )


def _failed_start(report: Mapping[str, Any]) -> SessionEnd:
    error = report.get("error") or {}
    text = f"{error.get('code') or 'internal'}: {error.get('message') or ''}"
    return SessionEnd(None, EndReason.START_FAILED, text, str(report.get("log") or ""))


def _end_of(report: Mapping[str, Any]) -> SessionEnd:
    end = report.get("end") or {}
    return SessionEnd(
        end.get("exit_code"),
        EndReason(end.get("reason_code") or EndReason.STOPPED),
        str(end.get("reason") or TextTemplate.STOPPED.value),
        str(report.get("log") or ""),
    )
