"""Quotas of every scope to which a session is charged, and the resources of a resource group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bai_services.core.cluster.devices import SHARES, Device, is_device_slot, thousandths
from bai_services.core.resources import CPU, MEM, SHARE_UNIT, format_amount, percent_of
from bai_services.core.scheduling.caps import SESSIONS, ScopeCaps, Usage, amount_text, left
from bai_services.core.scheduling.placement import AgentState
from bai_services.core.sessions.options import GroupResource, ScopeQuota, SlotQuota
from bai_services.db.sessions.requests import AdmissionFacts


def scope_quotas(facts: AdmissionFacts) -> list[ScopeQuota]:
    """Return limit, usage and remainder of each slot that a scope limits or counts.

    If a scope forbids unspecified slots, its list also contains the slots of the agents and of the
    other scopes. ``is_limiting`` is set if the scope limits the slot and no other scope has less of
    the slot left.
    """
    caps = [facts.caps[scope] for scope in facts.scopes if scope in facts.caps]
    slots = {one.scope: _slots(one, facts) for one in caps}
    known = set(_totals(facts.agents)).union(*slots.values())
    return [
        ScopeQuota(
            kind=one.scope.kind,
            name=one.name,
            slots=[
                _slot_quota(one, slot, caps, facts.usage)
                for slot in sorted(known if one.is_closed else slots[one.scope])
            ],
        )
        for one in caps
    ]


def group_resources(agents: Sequence[AgentState]) -> list[GroupResource]:
    """Return total and used amounts of every slot of the live, schedulable agents."""
    return [_resource(slot, *amounts) for slot, amounts in _totals(agents).items()]


def own_resources(
    agents: Sequence[AgentState], used: Mapping[str, int], facts: AdmissionFacts
) -> list[GroupResource]:
    """Return, for each slot of a group, what a user uses and what the user can still get.

    ``used`` holds the amounts of the user's sessions in the group.
    """
    caps = [facts.caps[scope] for scope in facts.scopes if scope in facts.caps]
    resources = []
    for slot, (total, in_use) in _totals(agents).items():
        own = _own_amount(slot, used)
        rest = left(caps, slot, facts.usage)
        free = max(0, total - in_use)
        free = free if rest is None else min(free, max(0, rest))
        resources.append(_resource(slot, own + free, own))
    return resources


def _own_amount(slot: str, used: Mapping[str, int]) -> int:
    """Return the used amount of a slot; whole devices and shares of a family are both counted."""
    if not is_device_slot(slot):
        return used.get(slot, 0)
    family = slot.partition(".")[0]
    of_family = (
        thousandths(other, amount)
        for other, amount in used.items()
        if is_device_slot(other) and other.partition(".")[0] == family
    )
    return sum(of_family) // thousandths(slot, 1)


def _totals(agents: Sequence[AgentState]) -> dict[str, list[int]]:
    """Return total and used amounts of the live, schedulable agents by slot."""
    totals: dict[str, list[int]] = {}
    for agent in agents:
        if not (agent.is_alive and agent.is_schedulable):
            continue
        for slot in (CPU, MEM):
            _add(totals, slot, agent.capacity.get(slot, 0), agent.used.get(slot, 0))
        for device in agent.devices:
            _add(totals, *_device_amounts(device))
    return totals


def _resource(slot: str, total: int, used: int) -> GroupResource:
    return GroupResource(
        slot=slot,
        total=format_amount(slot, total),
        used=format_amount(slot, used),
        free=format_amount(slot, max(0, total - used)),
        percent=min(100, percent_of(used, total)),
    )


def _slots(caps: ScopeCaps, facts: AdmissionFacts) -> set[str]:
    """Return the slots that a scope limits explicitly or counts."""
    usage = facts.usage.get(caps.scope, {})
    slots = {slot for slot in caps.slots if caps.limit(slot) is not None}
    return slots | {slot for slot, used in usage.items() if used} | {SESSIONS}


def _slot_quota(caps: ScopeCaps, slot: str, scopes: Sequence[ScopeCaps], usage: Usage) -> SlotQuota:
    limit = caps.limit(slot)
    used = usage.get(caps.scope, {}).get(slot, 0)
    rest = left([caps], slot, usage)
    return SlotQuota(
        slot=slot,
        used=amount_text(slot, used),
        limit=None if limit is None else amount_text(slot, limit),
        left=None if rest is None else amount_text(slot, rest),
        percent=None if limit is None else min(100, percent_of(used, limit)),
        is_limiting=rest is not None and rest == left(scopes, slot, usage),
    )


def _device_amounts(device: Device) -> tuple[str, int, int]:
    """Return the slot of a device with its total and used amounts; 0 if it is unhealthy."""
    if device.sharing.most and not device.slot:
        slot, total, used = f"{device.family}.{SHARES}", device.capacity, device.used
    else:
        slot = device.slot or f"{device.family}.device"
        total, used = device.capacity // SHARE_UNIT, int(bool(device.used))
    return (slot, total, used) if device.is_healthy else (slot, 0, 0)


def _add(totals: dict[str, list[int]], slot: str, total: int, used: int) -> None:
    amounts = totals.setdefault(slot, [0, 0])
    amounts[0] += total
    amounts[1] += used
