"""Explain why sessions are pending (step 7 of a pass): the failed checks, computed per shape."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ...coded_text import CodedText, TextTemplate
from ...resources import format_amount
from ..caps import violation_facts
from ..maintenance import NO_AGENTS
from ..placement import Refusal
from ..preemption.plan import Plan
from .group_queue import GroupQueue
from .model import PauseIfBusy, PendingSession, Reason, Reservation, announced_start, no_op
from .shape import Shape

ACCOUNT = "account"
BUDGET = "budget"
GROUP = "resource-group"
DEPENDENCIES = "dependencies"
NOT_BEFORE = "not-before"
MAINTENANCE = "maintenance"
ADVANCE_RESERVATION = "advance-reservation"
POLICY = "policy"
RESOURCES = "resources"
RESERVATION = "reservation"
PREEMPTION = "preemption"
PREEMPTIBLE = "preemptible"
ORDER = "order"

_RESERVED_CODES = frozenset(
    template.code
    for template in (
        TextTemplate.RESERVED_UNTIL,
        TextTemplate.RESERVED_AHEAD,
        TextTemplate.RESERVED_PART_UNTIL,
        TextTemplate.RESERVED_PART_AHEAD,
        TextTemplate.ONLY_RESERVED_AGENTS,
    )
)


def reason(check: str, text: CodedText, passed: bool = False, **facts: Any) -> Reason:
    """Return the result of one check as a JSON object."""
    return {
        "check": check,
        "passed": passed,
        "message": str(text),
        "coded": text.as_json(),
        **facts,
    }


def blocked(text: CodedText) -> Reason:
    """Return the failed check of a session with ``blocked_reason``."""
    return reason(BUDGET if text.code == TextTemplate.BUDGET_SPENT.code else ACCOUNT, text)


def blocked_reasons(pending: PendingSession) -> tuple[Reason, ...]:
    """Return why a session is excluded from passes."""
    reasons = []
    if pending.blocked_reason is not None:
        reasons.append(blocked(pending.blocked_reason))
    if pending.unmet_dependencies is not None:
        reasons.append(reason(DEPENDENCIES, pending.unmet_dependencies))
    if not reasons and pending.not_before is not None:
        at = pending.not_before.isoformat()
        reasons.append(
            reason(NOT_BEFORE, TextTemplate.START_TIME_AHEAD.text(starts_at=at), not_before=at)
        )
    return tuple(reasons)


def explain_group(group_queue: GroupQueue, pause_if_busy: PauseIfBusy = no_op) -> None:
    """Set the reasons of every shape of a group after a pass.

    All sessions of a shape share their reasons, except a session with a reservation, because
    reservations change often.
    """
    group_queue.capacity_reasons = {
        handle: _capacity_reasons(group_queue, handle, pause_if_busy)
        for handle in {shape.handle for shape in group_queue.shapes.values()}
    }
    shared = (delaying(group_queue),), (behind(group_queue),), (inactive(group_queue.state.name),)
    for shape in group_queue.shapes.values():
        pause_if_busy()
        reasons = _shape_reasons(group_queue, shape, shared)
        if reasons != shape.reasons:
            shape.reasons = reasons
    group_queue.reserved = {
        reservation.session_id: _with_reservation(reserving, reservation)
        for reservation in group_queue.reservations
        if (reserving := group_queue.shape_of.get(reservation.session_id)) is not None
    }


def _with_reservation(shape: Shape, reservation: Reservation) -> tuple[Reason, ...]:
    if shape.pending.plan is not None:
        return (preempts(shape.pending.plan), *shape.reasons)
    return (*shape.reasons, reserved(reservation))


def _shape_reasons(
    group_queue: GroupQueue, shape: Shape, shared: tuple[tuple[Reason, ...], ...]
) -> tuple[Reason, ...]:
    """Return the checks that a shape failed.

    ``shared`` holds the tuples of reasons that several shapes share.
    """
    in_reserved_capacity, out_of_turn, in_inactive_group = shared
    if not group_queue.state.is_active:
        return in_inactive_group
    exceeded = policy_reasons(group_queue, shape)
    if exceeded:
        return exceeded
    withheld = maintenance_reasons(shape.pending)
    if withheld and shape.pending.request.designated_agents == NO_AGENTS:
        return withheld
    is_behind = (
        group_queue.stopped_by and group_queue.shape_of.get(group_queue.stopped_by) is not shape
    )
    if is_behind and group_queue.placer.fits_when_empty(shape.handle):
        return out_of_turn
    no_capacity_reasons = group_queue.capacity_reasons[shape.handle]
    if withheld and no_capacity_reasons:
        return (*withheld, *no_capacity_reasons)
    return no_capacity_reasons or in_reserved_capacity


def maintenance_reasons(pending: PendingSession) -> tuple[Reason, ...]:
    """Return the reason why maintenance or an advance reservation restricts the agents of a
    session; empty if none does.
    """
    text = pending.maintenance
    if text is None:
        return ()
    is_reserved = text.code in _RESERVED_CODES
    return (reason(ADVANCE_RESERVATION if is_reserved else MAINTENANCE, text),)


def _capacity_reasons(
    group_queue: GroupQueue, handle: int, pause_if_busy: PauseIfBusy
) -> tuple[Reason, ...]:
    """Return why a request does not fit; empty if it fits.

    If the reasons have not changed, return the same object as before.
    """
    pause_if_busy()
    why = capacity_reason(group_queue, handle)
    if why is None:
        return ()
    before = group_queue.capacity_reasons.get(handle, ())
    return before if before == (why,) else (why,)


def capacity_reason(group_queue: GroupQueue, handle: int) -> Reason | None:
    """Return why a request does not fit; None if it fits."""
    if group_queue.placer.fits(handle):
        return None
    return no_capacity(
        group_queue.placer.refusal(handle),
        is_possible=group_queue.placer.fits_when_empty(handle),
        machines_since=group_queue.state.machines_since,
    )


def inactive(group: str) -> Reason:
    return reason(GROUP, TextTemplate.GROUP_INACTIVE.text(group=group))


def policy_reasons(group_queue: GroupQueue, shape: Shape) -> tuple[Reason, ...]:
    """Return a reason for every cap of any scope that a session would exceed."""
    violations = group_queue.quotas.violations(shape.rows, shape.need)
    return tuple({"check": POLICY, "passed": False, **violation_facts(v)} for v in violations)


def no_capacity(
    refusal: Refusal, *, is_possible: bool = True, machines_since: datetime | None = None
) -> Reason:
    """Return why a session fits on no agent.

    ``is_possible``: whether the session would fit if the group were empty and healthy.
    ``machines_since``: since when a machine is being started for the group.
    """
    facts = [
        {
            "slot": s.slot,
            "asked": format_amount(s.slot, s.asked),
            "available": format_amount(s.slot, s.available),
        }
        for s in refusal.shortages
    ]
    # In a group without agents, the session does not wait because of other sessions.
    text = refusal.text
    if machines_since is not None:
        text = TextTemplate.MACHINE_STARTING.text(text, started_at=machines_since.isoformat())
    elif not is_possible and refusal.agents:
        text = TextTemplate.NOT_EVEN_ALONE.text(text)
    return reason(
        RESOURCES,
        text,
        agents=refusal.agents,
        shortages=facts,
        possible=is_possible,
    )


def behind(group_queue: GroupQueue) -> Reason:
    """Return the reason for a session that must not overtake an earlier one."""
    return reason(
        ORDER,
        TextTemplate.BEHIND.text(group=group_queue.state.name),
        behind=group_queue.stopped_by,
    )


def reserved(reservation: Reservation) -> Reason:
    """Return a passed check which states that capacity is reserved, and from when.

    The time is not certain: a session that exceeds a quota now may still start first. The session's
    estimate states the certainty.
    """
    start = announced_start(reservation.starts_at)
    at = None if start is None else start.isoformat()
    return reason(
        RESERVATION,
        TextTemplate.RESERVED_AT_UNKNOWN_TIME.text()
        if at is None
        else TextTemplate.RESERVED.text(),
        passed=True,
        session_id=reservation.session_id,
        starts_at=at,
        agents=sorted({place.agent_id for place in reservation.placements}),
    )


def preempts(plan: Plan) -> Reason:
    """Return a passed check which states that other sessions are stopped for a session.

    The check does not name these sessions, because the owner may not be allowed to see them.
    """
    at = plan.starts_at.isoformat()
    return reason(
        PREEMPTION,
        TextTemplate.PREEMPTS.text(count=len(plan.victims), starts_at=at),
        passed=True,
        sessions=len(plan.victims),
        stops_at=plan.stops_at.isoformat(),
        starts_at=at,
    )


def preemptible(group_queue: GroupQueue, pending: PendingSession) -> Reason:
    """Return a passed check which states whether a session can be preempted after its start."""
    limit = group_queue.state.preemption.preemptible_priority
    template = TextTemplate.CAN_BE_PREEMPTED
    if pending.priority > limit:
        template = TextTemplate.ABOVE_PREEMPTIBLE_PRIORITY
    text = template.text(priority=pending.priority, limit=limit, group=group_queue.state.name)
    if not pending.is_preemptible:
        text = TextTemplate.NOT_PREEMPTIBLE.text()
    return reason(PREEMPTIBLE, text, passed=True)


def has_reservation(session_id: str, reasons: Iterable[Reason]) -> bool:
    """Return whether the reasons of a session contain its reservation (see ``reserved``)."""
    return any(
        check["check"] == RESERVATION and check["passed"] and check["session_id"] == session_id
        for check in reasons
    )


def waits_for_capacity(reasons: Iterable[Reason]) -> bool:
    """Return whether a session starts when other sessions have released resources or quota."""
    return any(
        not check["passed"]
        and (check["check"] == POLICY or (check["check"] == RESOURCES and check["possible"]))
        for check in reasons
    )


def delaying(group_queue: GroupQueue) -> Reason:
    """Return the reason for a session that fits, but would delay a session with a reservation."""
    times = [r.starts_at for r in group_queue.reservations if r.starts_at is not None]
    start = announced_start(min(times, default=None))
    at = None if start is None else start.isoformat()
    return reason(
        RESERVATION,
        TextTemplate.DELAYS.text() if at is None else TextTemplate.DELAYS_FROM.text(starts_at=at),
        reserved_for=[r.session_id for r in group_queue.reservations],
        starts_at=at,
    )
