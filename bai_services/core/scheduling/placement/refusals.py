"""Explain why a request does not fit on any agent, with numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...cluster.device_sharing import ANY_SHARE
from ...cluster.devices import Shortage, is_device_slot
from ...coded_text import CodedText, TextTemplate
from ...resources import CPU, MEM, format_amount, readable_amount
from ..placement_options import Designation
from .compiled import columns as c
from .compiled.columns import Columns, Ints
from .model import AgentState, Refusal, Request

Mask = NDArray[np.bool_]


def explain(
    agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints, fitting: int
) -> Refusal:
    """Return why a request does not fit; ``row`` is its shape row.

    ``fitting`` is the number of kernels of a multi-node session that fit.
    """
    group = request.resource_group
    if not agents:
        return Refusal(TextTemplate.NO_AGENT.text(group=group))
    suitable = _suitable_agents(agents, columns, request, row)
    works = _has_storage(columns, row)
    able = suitable & works
    if not able.any():
        return Refusal(
            _explain_no_suitable_agent(agents, columns, request, row), agents=len(agents)
        )
    text, shortages = _explain_shortage(columns, able, request, row, fitting)
    if without := int((suitable & ~works).sum()):
        hosts = _failing_hosts(agents, request, suitable)
        text = TextTemplate.ALSO_WITHOUT_STORAGE.text(text, count=without, names=hosts)
    if full := int((_full_networks(agents) & _accepts(agents, columns, request, row)).sum()):
        text = TextTemplate.ALSO_WITHOUT_SUBNET.text(text, count=full)
    return Refusal(text, shortages, int(able.sum()))


def _explain_shortage(
    columns: Columns, able: Mask, request: Request, row: Ints, fitting: int
) -> tuple[CodedText, tuple[Shortage, ...]]:
    """Return why no agent in ``able`` has the free capacity for a request."""
    group = request.resource_group
    if fitting:
        kernels = request.kernels
        return TextTemplate.KERNELS_FIT.text(group=group, fitting=fitting, kernels=kernels), ()
    shortages = _shortages(columns, able, request, row)
    if shortages:
        text = TextTemplate.SHORTAGES.text(*(s.text for s in shortages), group=group)
        return text, tuple(shortages)
    kernels, slots = int(row[c.KERNELS]), str(request.slots)
    if kernels > 1:
        text = TextTemplate.NO_SINGLE_AGENT_FOR_KERNELS.text(
            group=group, kernels=kernels, slots=slots
        )
    else:
        text = TextTemplate.NO_SINGLE_AGENT.text(group=group, slots=slots)
    return text, ()


def _matches(columns: Columns, row: Ints) -> tuple[Mask, Mask]:
    """Return two masks of agents: for the architecture and engine, and for the driver."""
    a = columns.agents
    fits = a[:, c.ARCHITECTURE] == row[c.ARCHITECTURE]
    if row[c.ENGINE] != c.ANY:
        fits &= a[:, c.ENGINE] == row[c.ENGINE]
    driver = a[:, c.DRIVER]
    return fits, (driver == c.ANY) | (driver >= row[c.DRIVER])


def _suitable_agents(
    agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints
) -> Mask:
    """Return a mask of the agents that could run the request with enough free resources, if its
    folders work there.
    """
    able: Mask = _accepts(agents, columns, request, row) & (columns.agents[:, c.OPEN] == 1)
    return able


def _accepts(agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints) -> Mask:
    """Return a mask of the agents whose kind and id match the request."""
    fits, has_driver = _matches(columns, row)
    able: Mask = fits & has_driver
    if request.designated_agents and request.designation == Designation.STRICT:
        able &= np.array([agent.id in request.designated_agents for agent in agents])
    return able


def _full_networks(agents: Sequence[AgentState]) -> Mask:
    """Return a mask of the agents that accept no sessions because no subnet is free."""
    return np.array([a.is_alive and a.is_schedulable and a.is_network_full for a in agents])


def _has_storage(columns: Columns, row: Ints) -> Mask:
    """Return a mask of the agents on which the storage hosts of the request work."""
    works: Mask = columns.agents[:, c.STORAGE] & row[c.STORAGE] == 0
    return works


def _failing_hosts(agents: Sequence[AgentState], request: Request, among: Mask) -> str:
    """Return the storage hosts of the request that do not work on some of the agents."""
    failing = {
        name
        for agent, is_among in zip(agents, among, strict=True)
        if is_among
        for name in agent.unusable_hosts
    }
    return ", ".join(name for name in request.storage_hosts if name in failing)


def _explain_no_suitable_agent(
    agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints
) -> CodedText:
    """Return why no agent of the group could run the request, even without sessions."""
    fits, has_driver = _matches(columns, row)
    alive = np.array([agent.is_alive for agent in agents])
    is_open = columns.agents[:, c.OPEN] == 1
    full = _full_networks(agents)
    other = is_open & ~fits
    parts = [
        TextTemplate.AGENTS_NOT_ALIVE.text(count=int((~alive).sum())),
        TextTemplate.AGENTS_NOT_SCHEDULABLE.text(count=int((alive & ~is_open & ~full).sum())),
        TextTemplate.AGENTS_OF_OTHER_KIND.text(
            count=int(other.sum()), architecture=request.architecture
        ),
    ]
    old = int((is_open & fits & ~has_driver).sum())
    if old:
        parts.append(
            TextTemplate.AGENTS_WITH_OLD_DRIVER.text(count=old, cuda=request.min_cuda_driver)
        )
    if full.any():
        parts.append(TextTemplate.AGENTS_WITHOUT_SUBNET.text(count=int(full.sum())))
    could = is_open & fits & has_driver
    works = _has_storage(columns, row)
    if without := int((could & ~works).sum()):
        hosts = _failing_hosts(agents, request, could)
        parts.append(TextTemplate.AGENTS_WITHOUT_STORAGE.text(count=without, names=hosts))
    rest = int((could & works).sum())
    if rest:
        names = ", ".join(request.designated_agents)
        parts.append(TextTemplate.AGENTS_NOT_DESIGNATED.text(count=rest, names=names))
    group = request.resource_group
    if len(agents) == 1:
        return TextTemplate.ONLY_AGENT_UNABLE.text(*parts, group=group)
    return TextTemplate.AGENTS_UNABLE.text(*parts, agents=len(agents), group=group)


def _shortages(columns: Columns, able: Mask, request: Request, row: Ints) -> list[Shortage]:
    """Return a shortage for each slot that no agent can provide, even without the other slots."""
    shortages: list[Shortage] = []
    need = 0
    for slot, amount in request.slots.items():
        asked = amount
        if is_device_slot(slot):
            most = _max_available(columns, able, row, need)
            min_share = _min_share(columns, able, row, need)
            others = _shares_in_force(columns, able, row, need)
            need += 1
            if others:
                shortages.append(_other_share(slot, amount, others))
                continue
            if amount < min_share <= most:
                shortages.append(_too_small(slot, amount, min_share))
        else:
            column = {CPU: c.CPU, MEM: c.MEM}[slot]
            most = max(0, int(columns.agents[able, column].max()))
            asked = amount * int(row[c.KERNELS])
        if most < asked:
            is_unshared = is_device_slot(slot) and _is_unshared(columns, able, row, need - 1)
            shortages.append(_short(slot, asked, most, is_unshared=is_unshared))
    return shortages


def _serving(facts: Ints, row: Ints, need: int) -> Mask:
    """Return a mask of the devices with the family and a model of a need."""
    family, _, _, models = row[c.NEED_START + c.NEED_WIDTH * need :][: c.NEED_WIDTH]
    serving: Mask = facts[:, :, c.FAMILY] == family
    if models != c.ANY:
        model = facts[:, :, c.MODEL].clip(0, 62)
        serving &= (models >> model) & 1 == 1
    return serving


def _min_share(columns: Columns, able: Mask, row: Ints, need: int) -> int:
    """Return the smallest share that any suitable device allows, in thousandths.

    0 if whole devices are requested, or if no suitable device can be shared.
    """
    if row[c.NEED_START + c.NEED_WIDTH * need + c.NEED_WHOLE]:
        return 0
    facts = columns.facts[able]
    shared = facts[:, :, c.MIN_SHARE][_serving(facts, row, need) & (facts[:, :, c.MAX_SHARE] > 0)]
    return int(shared.min()) if shared.size else 0


def _max_available(columns: Columns, able: Mask, row: Ints, need: int) -> int:
    """Return the largest amount of a device slot that one kernel could have on one agent."""
    facts, free = columns.facts[able], columns.free[able]
    serving = _serving(facts, row, need)
    if row[c.NEED_START + c.NEED_WIDTH * need + c.NEED_WHOLE]:
        whole = serving & (free == facts[:, :, c.CAPACITY]) & (free >= c.UNIT)
        return int(whole.sum(axis=1).max())
    limit = facts[:, :, c.MAX_SHARE]
    serving &= free >= facts[:, :, c.MIN_SHARE]
    in_force = facts[:, :, c.IN_FORCE]
    here = np.minimum(free, limit)
    here = np.where(in_force > 0, np.where(in_force <= here, in_force, 0), here)
    here = np.where(here >= facts[:, :, c.MIN_SHARE], here, 0)
    alone = int(np.where(serving & (limit < ANY_SHARE), here, 0).max())
    serving &= limit >= ANY_SHARE
    parts = np.where(serving, free, 0).clip(0, c.UNIT) // c.PART_STEP * c.PART_STEP
    if row[c.MAY_FRAGMENT]:
        return max(alone, int(np.where(parts >= c.MIN_PART, parts, 0).sum(axis=1).max()))
    parts = -np.sort(-parts, axis=1)
    largest = parts[:, 0]
    for n in range(2, parts.shape[1] + 1):
        # A part on each of n devices is at most the n-th largest free capacity, or one step more on
        # devices with more free capacity.
        part = parts[:, n - 1]
        total = part * n + c.PART_STEP * (parts[:, :n] > part[:, None]).sum(axis=1)
        largest = np.maximum(largest, np.where((total > c.UNIT) & (part >= c.MIN_PART), total, 0))
    return max(alone, int(largest.max()))


def _shares_in_force(columns: Columns, able: Mask, row: Ints, need: int) -> list[int]:
    """Return the shares in force on devices with enough free capacity for the request.

    ``UNMATCHABLE_SHARE`` is the share of a device that accepts no session until it is empty.

    The result is empty if another device can serve the request, because shares in force are then
    not the reason.
    """
    columns_of_need = row[c.NEED_START + c.NEED_WIDTH * need :][: c.NEED_WIDTH]
    amount = int(columns_of_need[c.NEED_AMOUNT])
    if columns_of_need[c.NEED_WHOLE] or amount > c.UNIT:
        return []
    facts, free = columns.facts[able], columns.free[able]
    could = _serving(facts, row, need) & (free >= amount) & (facts[:, :, c.MIN_SHARE] <= amount)
    could &= facts[:, :, c.MAX_SHARE] >= amount
    in_force = facts[:, :, c.IN_FORCE]
    others = could & (in_force > 0) & (in_force != amount)
    # A share in force is also unavailable if it is below a minimum that was raised later.
    in_force = np.where(in_force < facts[:, :, c.MIN_SHARE], c.UNMATCHABLE_SHARE, in_force)
    return [] if (could & ~others).any() else sorted(set(in_force[others].tolist()))


def _other_share(slot: str, asked: int, others: list[int]) -> Shortage:
    shares = ", ".join(
        format_amount(slot, share) for share in others if share < c.UNMATCHABLE_SHARE
    )
    values = {"slot": slot, "asked": format_amount(slot, asked)}
    return Shortage(
        slot,
        asked,
        max((share for share in others if share < asked), default=0),
        TextTemplate.OTHER_SHARES.text(**values, shares=shares)
        if shares
        else TextTemplate.OTHER_SHARE_SIZE.text(**values),
    )


def _too_small(slot: str, asked: int, min_share: int) -> Shortage:
    return Shortage(
        slot,
        asked,
        0,
        TextTemplate.SHARE_TOO_SMALL.text(
            slot=slot,
            asked=format_amount(slot, asked),
            smallest=format_amount(slot, min_share),
        ),
    )


def _is_unshared(columns: Columns, able: Mask, row: Ints, need: int) -> bool:
    """Return whether a share is requested and suitable devices exist, but none can be shared."""
    if row[c.NEED_START + c.NEED_WIDTH * need + c.NEED_WHOLE]:
        return False
    facts = columns.facts[able]
    limits = facts[:, :, c.MAX_SHARE][_serving(facts, row, need)]
    return bool(limits.size) and not limits.any()


def _short(slot: str, asked: int, most: int, *, is_unshared: bool) -> Shortage:
    template = TextTemplate.SHORTAGE_WITHOUT_SHARING if is_unshared else TextTemplate.SHORTAGE
    requested = format_amount(slot, asked)
    available = format_amount(slot, readable_amount(slot, most))
    hint = "; no device can be shared now at the required enforcement level" if is_unshared else ""
    return Shortage(
        slot,
        asked,
        most,
        template.text(slot=slot, asked=requested, available=available),
        f"{slot}={requested} requested, but the largest agent offers {available}{hint}",
    )
