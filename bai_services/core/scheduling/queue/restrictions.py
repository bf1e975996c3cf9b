"""Restrict the agents of pending sessions by maintenance and advance reservations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from ..advance_reservations import both, held_parts, held_restriction
from ..maintenance import NO_AGENTS, restriction
from ..placement import Designation
from .model import GroupState, PendingSession


def restricted(
    state: GroupState, agent_ids: Collection[str], now: datetime, pending: PendingSession
) -> PendingSession:
    """Return a pending session whose request is restricted to the agents on which it may start now,
    and to the capacity that is not reserved for others.

    ``agent_ids`` are the agents of the resource group.
    """
    original = pending.without_maintenance()
    agent_ids = _usable(original, agent_ids)
    found = restriction(state.maintenance, agent_ids, now, original.max_run_seconds)
    beside: tuple[str, ...] = ()
    part_text = None
    if state.held:
        held = held_restriction(
            state.held,
            agent_ids,
            now,
            max_run_seconds=original.max_run_seconds,
            scopes=original.scopes,
            reservation_id=original.reservation_id,
        )
        found = both(found, held)
        beside, part_text = held_parts(
            state.held,
            agent_ids,
            now,
            max_run_seconds=original.max_run_seconds,
            scopes=original.scopes,
        )
    request = replace(original.request, beside=beside)
    if found is None:
        if part_text is None:
            return original
        return replace(
            original, request=request, maintenance=part_text, unrestricted=original.request
        )
    wanted = set(request.designated_agents)
    agents = tuple(a for a in found.agents if a in wanted or not wanted)
    if not agents and request.designation is Designation.PREFERRED:
        agents = found.agents
    request = replace(
        request, designated_agents=agents or NO_AGENTS, designation=Designation.STRICT
    )
    return replace(original, request=request, maintenance=found.text, unrestricted=original.request)


def _usable(pending: PendingSession, agent_ids: Collection[str]) -> Collection[str]:
    """Return the agents on which a session may run.

    Maintenance or a reservation of other agents does not affect the session, so it must not be
    given as a reason.
    """
    wanted = set(pending.request.designated_agents)
    if not wanted or pending.request.designation is not Designation.STRICT:
        return agent_ids
    return wanted.intersection(agent_ids)
