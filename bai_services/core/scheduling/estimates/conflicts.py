"""Running sessions that can delay an advance reservation.

The scheduler stops no session for a reservation. A session that was already running at the approval
and is not certain to end in time therefore keeps its resources beyond the start.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ...cluster.devices import is_device_slot
from ..advance_reservations import HeldAgents
from ..placement import AgentState
from ..queue.model import RunningSession
from ..queue.reserved_parts import lacking_slots, remaining_parts
from .explainer import Explainer


@dataclass(frozen=True, slots=True)
class Conflict:
    """A session of others that may hold reserved resources at the start.

    ``agents``: the reserved agents with these resources. ``ends_at``: the enforced end; None: there
    is no time limit.
    """

    session_id: str
    agents: tuple[str, ...]
    ends_at: datetime | None


def conflicts_with(
    explainer: Explainer, group: str, held: HeldAgents, now: datetime
) -> tuple[Conflict, ...]:
    """Return the sessions that may delay a reservation; sessions without a time limit come first.

    Sessions that are being stopped, and sessions of the members, delay nothing. On an agent of
    which a part is reserved, sessions delay the reservation only if the rest of the agent is too
    small for them at the start.
    """
    queue = explainer.queue
    if group not in queue.groups() or now >= held.ends_at:
        return ()
    group_queue = queue.group_queue(group)
    start = max(now, held.starts_at)
    found: dict[str, list[str]] = {}
    running = group_queue.running
    for agent_id in sorted(held.agents):
        agent = group_queue.placer.agent(agent_id)
        there = [
            session
            for session in running.values()
            if any(placement.agent_id == agent_id for placement in session.placements)
        ]
        if agent is not None:
            for session in _in_the_way(agent, there, held, start):
                found.setdefault(session.id, []).append(agent_id)
    conflicts = [
        Conflict(key, tuple(agents), running[key].ends_at) for key, agents in found.items()
    ]

    def rank(one: Conflict) -> tuple[bool, float, str]:
        end = one.ends_at
        return end is not None, 0.0 if end is None else -end.timestamp(), one.session_id

    return tuple(sorted(conflicts, key=rank))


def _in_the_way(
    agent: AgentState, running: Collection[RunningSession], held: HeldAgents, start: datetime
) -> list[RunningSession]:
    """Return the sessions on an agent that may hold reserved resources at the start."""
    staying = [one for one in running if not _ends_by(one, start)]
    others = [one for one in staying if not held.admits(one.scopes)]
    if not held.booked or not others:
        return others
    over = [p for one in running if _ends_by(one, start) for p in one.placements]
    remaining = remaining_parts(agent.id, [held], staying)[held.id]
    lacking = lacking_slots(agent, over, remaining)
    families = {_family(slot) for slot in lacking}
    return [one for one in others if not families.isdisjoint(_families_on(agent.id, one))]


def _ends_by(session: RunningSession, at: datetime) -> bool:
    return session.is_ending or (session.ends_at is not None and session.ends_at <= at)


def _family(slot: str) -> str:
    """Return the family of a device slot: whole devices and shares of it exclude each other."""
    return slot.partition(".")[0] if is_device_slot(slot) else slot


def _families_on(agent_id: str, session: RunningSession) -> set[str]:
    there = [p for p in session.placements if p.agent_id == agent_id]
    slots = {slot for p in there for slot, amount in p.slots.items() if amount}
    return {_family(slot) for slot in slots | {d.slot for p in there for d in p.devices}}
