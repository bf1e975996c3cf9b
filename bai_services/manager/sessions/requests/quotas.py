"""Quotas of all scopes to which a session is charged, and the resources of a resource group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bai_services.core.cluster.devices import DEVICE, SHARES, Device, thousandths
from bai_services.core.resources import CPU, MEM, SHARE_UNIT, format_amount, percent_of
from bai_services.core.scheduling.caps import SESSIONS, ScopeCaps, Usage, amount_text, left
from bai_services.core.scheduling.placement import AgentState
from bai_services.core.sessions.options import GroupResource, ScopeQuota, SlotQuota
from bai_services.db.sessions.requests import AdmissionFacts, UsedAmount


def scope_quotas(facts: AdmissionFacts) -> list[ScopeQuota]:
    """Return limit, usage and remainder of each slot that a scope limits or counts.

    If a scope forbids unspecified slots, its list also contains cpu, mem, and the slots of the
    other scopes and of all agents, including drained and lost ones. ``is_limiting`` is set if the
    scope limits the slot and no other scope has less of the slot left.
    """
    caps = facts.caps_in_order
    slots = {one.scope: _slots(one, facts) for one in caps}
    known = {CPU, MEM}.union(*slots.values())
    known |= {_slot_of(device) for agent in facts.agents for device in agent.devices}
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
    agents: Sequence[AgentState], used: Iterable[UsedAmount], facts: AdmissionFacts
) -> list[GroupResource]:
    """Return a user's usage and remaining quota of each slot of a group.

    ``used`` holds the amounts of the user's sessions in the group, including those on agents that
    are lost or not schedulable. A device counts in the same slot as in ``group_resources``.
    """
    caps = facts.caps_in_order
    totals = _totals(agents)
    own = _own_amounts(agents, used)
    resources = []
    for slot in dict.fromkeys((*totals, *sorted(own))):
        total, in_use = totals.get(slot, (0, 0))
        rest = left(caps, slot, facts.usage)
        free = max(0, total - in_use)
        free = free if rest is None else min(free, rest)
        resources.append(_resource(slot, own[slot] + free, own[slot]))
    return resources


def _own_amounts(agents: Sequence[AgentState], used: Iterable[UsedAmount]) -> Counter[str]:
    """Return the used amounts by slot. A device counts in its own slot, see ``_slot_of``."""
    slots = {device.id: _slot_of(device) for agent in agents for device in agent.devices}
    amounts = Counter[str]()
    for one in used:
        slot = slots.get(one.device_id or "", one.slot)
        if slot == one.slot:
            amounts[slot] += one.amount
        else:
            # In a slot of whole devices, a partly used device counts as one device.
            amounts[slot] += -(-thousandths(one.slot, one.amount) // thousandths(slot, 1))
    return amounts


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
    slot = _slot_of(device)
    if not device.is_healthy:
        return slot, 0, 0
    if slot.endswith(f".{SHARES}"):
        return slot, device.capacity, device.used
    return slot, device.capacity // SHARE_UNIT, int(bool(device.used))


def _slot_of(device: Device) -> str:
    """Return the slot in which a device counts: the slot of shares if the device offers shares."""
    kind = SHARES if device.sharing.most else DEVICE
    return device.slot or f"{device.family}.{kind}"


def _add(totals: dict[str, list[int]], slot: str, total: int, used: int) -> None:
    amounts = totals.setdefault(slot, [0, 0])
    amounts[0] += total
    amounts[1] += used
