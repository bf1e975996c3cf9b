"""Why there is no room for a request, with numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...cluster.device_sharing import ANY_SHARE
from ...cluster.devices import Shortage, is_device_slot
from ...resources import CPU, MEM, format_amount
from . import columns as c
from .columns import Columns, Ints
from .model import AgentState, Designation, Refusal, Request

Mask = NDArray[np.bool_]


def explain(
    agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints, room: int
) -> Refusal:
    """Return why no agent fits a request; ``row`` is its shape.

    ``room`` is the number of kernels of a multi-node session that fit.
    """
    group = request.resource_group
    if not agents:
        return Refusal(f"resource group {group} has no agent")
    able = _able(agents, columns, request, row)
    if not able.any():
        return Refusal(_none_able(agents, columns, request, row), agents=len(agents))
    count = int(able.sum())
    if room:
        return Refusal(
            f"resource group {group}: room for {room} of {request.kernels} kernels now", (), count
        )
    shortages = _shortages(columns, able, request, row)
    if shortages:
        text = "; ".join(s.message for s in shortages)
        return Refusal(f"resource group {group}: {text}", tuple(shortages), count)
    what = str(request.slots)
    if row[c.TOGETHER] > 1:
        what = f"{row[c.TOGETHER]} times {what}"
    return Refusal(f"resource group {group}: no single agent has {what} free at once", (), count)


def _suits(columns: Columns, row: Ints) -> tuple[Mask, Mask]:
    """Return which agents match architecture and engine, and which have a suitable driver."""
    a = columns.agents
    fits = a[:, c.ARCHITECTURE] == row[c.ARCHITECTURE]
    if row[c.ENGINE] != c.ANY:
        fits &= a[:, c.ENGINE] == row[c.ENGINE]
    driver = a[:, c.DRIVER]
    return fits, (driver == c.ANY) | (driver >= row[c.DRIVER])


def _able(agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints) -> Mask:
    fits, has_driver = _suits(columns, row)
    able: Mask = (columns.agents[:, c.OPEN] == 1) & fits & has_driver
    if request.designated_agents and request.designation == Designation.STRICT:
        able &= np.array([agent.id in request.designated_agents for agent in agents])
    return able


def _none_able(agents: Sequence[AgentState], columns: Columns, request: Request, row: Ints) -> str:
    """Return the text for a group in which no agent may take such requests, however empty."""
    fits, has_driver = _suits(columns, row)
    alive = np.array([agent.is_alive for agent in agents])
    is_open = columns.agents[:, c.OPEN] == 1
    other = is_open & ~fits
    text = (
        f"none of the {len(agents)} agents of resource group {request.resource_group} can take "
        f"it: {int((~alive).sum())} not alive, {int((alive & ~is_open).sum())} not schedulable, "
        f"{int(other.sum())} of another architecture than {request.architecture} or another engine"
    )
    old = is_open & fits & ~has_driver
    if old.any():
        text += (
            f", {int(old.sum())} with a driver too old for CUDA {request.min_cuda_driver}, which "
            "the image needs"
        )
    rest = int((is_open & fits & has_driver).sum())
    if rest:
        names = ", ".join(request.designated_agents)
        text += f", {rest} not among the agents designated ({names})"
    return text


def _shortages(columns: Columns, able: Mask, request: Request, row: Ints) -> list[Shortage]:
    """Return the slots of which no agent has enough, each checked alone."""
    found: list[Shortage] = []
    need = 0
    for slot, amount in request.slots.items():
        asked = amount
        if is_device_slot(slot):
            most = _most_of_devices(columns, able, row, need)
            least = _least_share(columns, able, row, need)
            others = _shares_in_force(columns, able, row, need)
            need += 1
            if others:
                found.append(_other_share(slot, amount, others))
                continue
            if amount < least <= most:
                found.append(_too_small(slot, amount, least))
        else:
            column = {CPU: c.CPU, MEM: c.MEM}[slot]
            most = max(0, int(columns.agents[able, column].max()))
            asked = amount * int(row[c.TOGETHER])
        if most < asked:
            hint = ""
            if is_device_slot(slot) and _is_unshared(columns, able, row, need - 1):
                hint = "; no device is shared now with the required enforcement level"
            found.append(_short(slot, asked, most, hint))
    return found


def _serving(facts: Ints, row: Ints, need: int) -> Mask:
    """Return which devices match the family and models of a need."""
    family, _, _, models = row[c.NEED_START + c.NEED_WIDTH * need :][: c.NEED_WIDTH]
    serving: Mask = facts[:, :, c.FAMILY] == family
    if models != c.ANY:
        model = facts[:, :, c.MODEL].clip(0, 62)
        serving &= (models >> model) & 1 == 1
    return serving


def _least_share(columns: Columns, able: Mask, row: Ints, need: int) -> int:
    """Return the smallest share that the devices are divided into; 0 for whole devices."""
    if row[c.NEED_START + c.NEED_WIDTH * need + c.NEED_WHOLE]:
        return 0
    facts = columns.facts[able]
    shared = facts[:, :, c.MIN_SHARE][_serving(facts, row, need) & (facts[:, :, c.MAX_SHARE] > 0)]
    return int(shared.min()) if shared.size else 0


def _most_of_devices(columns: Columns, able: Mask, row: Ints, need: int) -> int:
    """Return the largest quantity of a device slot that one kernel could take on one agent."""
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
    alone = int(np.where(serving & (limit < ANY_SHARE), here, 0).max())
    serving &= limit >= ANY_SHARE
    rooms = np.where(serving, free, 0).clip(0, c.UNIT) // c.STEP * c.STEP
    if row[c.FRAGMENTS]:
        return max(alone, int(np.where(rooms >= c.LEAST, rooms, 0).sum(axis=1).max()))
    rooms = -np.sort(-rooms, axis=1)
    most = rooms[:, 0]
    for n in range(2, rooms.shape[1] + 1):
        part = rooms[:, n - 1]
        # The n-th largest room bounds the smaller parts; devices with more room may hold one step
        # more.
        held = part * n + c.STEP * (rooms[:, :n] > part[:, None]).sum(axis=1)
        most = np.maximum(most, np.where((held > c.UNIT) & (part >= c.LEAST), held, 0))
    return max(alone, int(most.max()))


def _shares_in_force(columns: Columns, able: Mask, row: Ints, need: int) -> list[int]:
    """Return the shares in force on devices with room, if only these prevent the placement."""
    wanted = row[c.NEED_START + c.NEED_WIDTH * need :][: c.NEED_WIDTH]
    amount = int(wanted[c.NEED_AMOUNT])
    if wanted[c.NEED_WHOLE] or amount > c.UNIT:
        return []
    facts, free = columns.facts[able], columns.free[able]
    could = _serving(facts, row, need) & (free >= amount) & (facts[:, :, c.MIN_SHARE] <= amount)
    could &= facts[:, :, c.MAX_SHARE] >= amount
    in_force = facts[:, :, c.IN_FORCE]
    others = could & (in_force > 0) & (in_force != amount)
    return [] if (could & ~others).any() else sorted(set(in_force[others].tolist()))


def _other_share(slot: str, asked: int, others: list[int]) -> Shortage:
    shares = ", ".join(format_amount(slot, share) for share in others if share < c.NOBODYS)
    return Shortage(
        slot,
        asked,
        max((share for share in others if share < asked), default=0),
        f"{slot}={format_amount(slot, asked)} asked, but the devices with room serve only shares "
        f"of {shares or 'another session'} until they are empty: all shares of one device are "
        "equal there",
    )


def _too_small(slot: str, asked: int, least: int) -> Shortage:
    return Shortage(
        slot,
        asked,
        0,
        f"{slot}={format_amount(slot, asked)} asked, but the devices here are divided into parts "
        f"of {format_amount(slot, least)} or more",
    )


def _is_unshared(columns: Columns, able: Mask, row: Ints, need: int) -> bool:
    """Return whether a share is requested and suitable devices exist, but none is shared."""
    if row[c.NEED_START + c.NEED_WIDTH * need + c.NEED_WHOLE]:
        return False
    facts = columns.facts[able]
    limits = facts[:, :, c.MAX_SHARE][_serving(facts, row, need)]
    return bool(limits.size) and not limits.any()


def _short(slot: str, asked: int, most: int, hint: str = "") -> Shortage:
    return Shortage(
        slot,
        asked,
        most,
        f"{slot}={format_amount(slot, asked)} asked, but at most {format_amount(slot, most)} "
        f"is free on one agent{hint}",
    )
