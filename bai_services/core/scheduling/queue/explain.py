"""Why a session waits (step 7): the checks that failed, with their numbers, once per shape."""

from __future__ import annotations

from typing import Any

from ...resources import format_amount
from ..caps import violation_facts
from ..placement import Refusal
from .group_queue import Line, Shape
from .model import GiveWay, Reason, Reservation, Waiting, go_on

ACCOUNT = "account"
GROUP = "resource-group"
DEPENDENCIES = "dependencies"
NOT_BEFORE = "not-before"
POLICY = "policy"
RESOURCES = "resources"
RESERVATION = "reservation"
ORDER = "order"


def reason(check: str, message: str, passed: bool = False, **facts: Any) -> Reason:
    """Return one check as JSON."""
    return {"check": check, "passed": passed, "message": message, **facts}


def held_reasons(waiting: Waiting) -> tuple[Reason, ...]:
    """Return why a session takes no part in passes, whatever room there is."""
    found = []
    if waiting.closed:
        found.append(reason(ACCOUNT, waiting.closed))
    if waiting.unmet:
        found.append(reason(DEPENDENCIES, waiting.unmet))
    if not found and waiting.not_before is not None:
        at = waiting.not_before.isoformat()
        found.append(reason(NOT_BEFORE, f"starts not before {at}", not_before=at))
    return tuple(found)


def explain_line(line: Line, give_way: GiveWay = go_on) -> None:
    """Set the reasons of every shape that still waits in a group after a pass.

    Only who has a reserved place has reasons of its own: all others of a shape share theirs,
    and what is reserved for whom changes often.
    """
    line.room_reasons = {
        handle: _room_reasons(line, handle, give_way)
        for handle in {shape.handle for shape in line.shapes.values()}
    }
    shared = (delaying(line),), (behind(line),), (inactive(line.state.name),)
    for shape in line.shapes.values():
        give_way()
        found = _shape_reasons(line, shape, shared)
        if found != shape.reasons:
            shape.reasons = found
    line.reserved = {
        kept.session_id: (*line.shape_of[kept.session_id].reasons, reserved(kept))
        for kept in line.reservations
        if kept.session_id in line.shape_of
    }


def _shape_reasons(
    line: Line, shape: Shape, shared: tuple[tuple[Reason, ...], ...]
) -> tuple[Reason, ...]:
    """Return the checks that a shape failed; ``shared`` are those that say the same of all."""
    in_reserved_room, in_line, in_closed_group = shared
    if not line.state.is_active:
        return in_closed_group
    found = policy_reasons(line, shape)
    if found:
        return found
    is_behind = line.stopped_by and line.shape_of.get(line.stopped_by) is not shape
    if is_behind and line.placer.can_ever(shape.handle):
        return in_line
    return line.room_reasons[shape.handle] or in_reserved_room


def _room_reasons(line: Line, handle: int, give_way: GiveWay) -> tuple[Reason, ...]:
    """Return why there is no room for a request, nothing when there is; the same object if so."""
    give_way()
    why = room_reason(line, handle)
    if why is None:
        return ()
    before = line.room_reasons.get(handle, ())
    return before if before == (why,) else (why,)


def room_reason(line: Line, handle: int) -> Reason | None:
    """Return why there is no room for a request, None when there is."""
    if line.placer.fits(handle):
        return None
    return lacking(line.placer.refusal(handle), is_ever=line.placer.can_ever(handle))


def inactive(group: str) -> Reason:
    return reason(GROUP, f"resource group {group} is not active")


def policy_reasons(line: Line, shape: Shape) -> tuple[Reason, ...]:
    """Return every cap that stands against a session, of whatever scope."""
    found = line.quotas.violations(shape.rows, shape.need)
    return tuple({"check": POLICY, "passed": False, **violation_facts(v)} for v in found)


def lacking(refusal: Refusal, *, is_ever: bool = True) -> Reason:
    """Return why no agent takes a session; without ``is_ever`` none could if nothing ran."""
    facts = [
        {
            "slot": s.slot,
            "asked": format_amount(s.slot, s.asked),
            "available": format_amount(s.slot, s.available),
        }
        for s in refusal.shortages
    ]
    more = "" if is_ever else "; not even with nothing running there"
    return reason(
        RESOURCES,
        refusal.message + more,
        agents=refusal.agents,
        shortages=facts,
        possible=is_ever,
    )


def behind(line: Line) -> Reason:
    """Return that an earlier session, which nothing may pass, waits for room."""
    return reason(
        ORDER,
        f"waits for its turn: an earlier session of resource group {line.state.name} waits for "
        "room",
        behind=line.stopped_by,
    )


def reserved(reservation: Reservation) -> Reason:
    """Return, as a check that passed, that a place is kept and when it comes free.

    How certain the start is says the estimate alone: a session that a quota holds back now may
    go first.
    """
    at = reservation.starts_at
    when = "; when it comes free is not known" if at is None else f" from {at.isoformat()}"
    return reason(
        RESERVATION,
        f"a place is reserved{when}",
        passed=True,
        session_id=reservation.session_id,
        starts_at=None if at is None else at.isoformat(),
        agents=sorted({place.agent_id for place in reservation.placements}),
    )


def delaying(line: Line) -> Reason:
    """Return that there is room, but that taking it would delay a reserved session."""
    times = [r.starts_at for r in line.reservations if r.starts_at is not None]
    at = min(times).isoformat() if times else None
    return reason(
        RESERVATION,
        "there is room now, but a session that starts there would delay an earlier one, which has "
        f"a place reserved{'' if at is None else f' from {at}'}",
        reserved_for=[r.session_id for r in line.reservations],
        starts_at=at,
    )
