"""Delays of pending sessions by an advance reservation that is not approved yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from ..advance_reservations import HeldAgents
from ..queue.model import Certainty, Changes
from .estimate import Budget, estimate_starts
from .explainer import Explainer


@dataclass(frozen=True, slots=True)
class Delay:
    """A pending session that starts later if the reservation is approved.

    ``starts_at``: the estimated start without the reservation. ``delayed_until``: the estimated
    start with it; None: no start can be estimated.
    """

    session_id: str
    starts_at: datetime
    delayed_until: datetime | None


def delays_by(
    explainer: Explainer, group: str, held: HeldAgents, budget: Budget | None = None
) -> tuple[Delay, ...]:
    """Return the delays by a reservation in a resource group, the longest first.

    Sessions without an estimated start, or with an imprecise one, are not compared. Sessions of
    other groups are included: groups with common caps affect each other.
    """
    queue = explainer.queue
    if group not in queue.groups():
        return ()
    approved = queue.fork_to_run()
    state = approved.group_queue(group).state
    approved.apply(Changes(groups=(replace(state, held=(*state.held, held)),)))
    later = estimate_starts(approved, budget)
    delays = []
    for name in queue.groups():
        for session_id, estimate in explainer.estimates(name).items():
            starts_at = estimate.starts_at
            if estimate.certainty is Certainty.ROUGH or starts_at is None:
                continue
            until = later[session_id].starts_at
            if until is None or until > starts_at:
                delays.append(Delay(session_id, starts_at, until))

    def rank(delay: Delay) -> tuple[bool, float, str]:
        until = delay.delayed_until
        seconds = 0.0 if until is None else (until - delay.starts_at).total_seconds()
        return until is not None, -seconds, delay.session_id

    return tuple(sorted(delays, key=rank))
