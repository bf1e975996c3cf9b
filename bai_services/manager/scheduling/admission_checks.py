"""Admission checks: can the request ever be satisfied, and may the caller choose its agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.cluster.devices import is_device_slot
from bai_services.core.errors import InsufficientResources, InvalidRequest, NotFound
from bai_services.core.resources import ResourceSlots, format_amount
from bai_services.core.scheduling import caps as policy
from bai_services.core.scheduling.placement import (
    AgentState,
    Designation,
    Mode,
    Placer,
    Policy,
    Refusal,
    Request,
    place,
)
from bai_services.core.sessions.kernel_group import check_cluster, request_of, total_slots
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.requests import (
    AdmissionFacts,
    GroupFacts,
    OwnerFacts,
    ProjectFacts,
    RequestStore,
)

from ..accounts import authorizer
from .jit_warmup import JitWarmup

Where = dict[str, Any]

# The agents of a group are cached for this time.
REMEMBERED_SECONDS = 5.0
# A request waits this long for the placement code to compile, well within the timeout of clients.
PATIENCE_SECONDS = 15.0


def where_of(
    caller: Caller, project: ProjectFacts, owner: OwnerFacts, request: SessionSpec
) -> Where:
    """Return the placement options of a request, as they are stored with the session.

    Raises
    ------
    Forbidden
        If it designates agents and the caller is not an administrator of the domain.
    InvalidRequest
        If agent_selection is unknown.
    """
    where: Where = request.options()
    if not request.agent_list:
        where.pop("agent_selection", None)
        return where
    target = Target(project.domain, project.id, Owner(owner.id, owner.role))
    authorizer.require(caller, "session.designate", target)
    if request.agent_selection not in set(Designation):
        raise InvalidRequest(
            f"{request.agent_selection[:40]!r} is not a valid agent_selection; there are "
            f"{', '.join(Designation)}",
            field="agent_selection",
        )
    where["agent_list"] = list(dict.fromkeys(request.agent_list))
    where["agent_selection"] = request.agent_selection
    return where


def check_caps(room: AdmissionFacts, slots: ResourceSlots, request: SessionSpec) -> None:
    """Refuse what a cap forbids even when the cluster is empty.

    Raises
    ------
    InvalidRequest
        If the cluster size or mode is invalid.
    QuotaExceeded
        With every such cap.
    """
    size = request.cluster_size
    check_cluster(size, request.cluster_mode)
    caps = [room.caps[scope] for scope in room.scopes if scope in room.caps]
    found = policy.violations(caps, total_slots(slots, size), room.usage, ever=True)
    policy.refuse([*found, *policy.container_violations(caps, size)])


@dataclass(slots=True)
class GroupAgents:
    """The agents of a resource group as read, and the requests found to fit there."""

    states: Sequence[AgentState]
    read_at: float
    fitting: set[str] = field(default_factory=set)


class FittingAgents:
    """Checks whether the agents of a resource group could ever run a request.

    Agents are cached for a moment. If one has left meanwhile, the session stays pending, as if the
    agent had left a moment later. A refusal is never based on the cache, and while a new
    installation compiles the placement code, the queue decides instead.
    """

    def __init__(self, store: RequestStore, jit_warmup: JitWarmup) -> None:
        self._store = store
        self._jit_warmup = jit_warmup
        self._groups: dict[str, GroupAgents] = {}

    async def of(self, group: str) -> GroupAgents:
        found = self._groups.get(group)
        if found is None or time.monotonic() - found.read_at > REMEMBERED_SECONDS:
            found = GroupAgents(await self._store.agents(group), time.monotonic())
            if found.states:
                self._groups[group] = found
        return found

    async def check(
        self,
        agents: GroupAgents,
        slots: ResourceSlots,
        target: tuple[GroupFacts, str],
        request: SessionSpec,
        where: Where,
    ) -> None:
        """Refuse what no state of the agents could satisfy.

        ``target`` is the group and the image's architecture.

        Raises
        ------
        NotFound
            If a designated agent is not in the group.
        InsufficientResources
            If the agents of the group could never run it, with the numbers.
        """
        group, architecture = target
        plain = Request(slots, group.name, architecture, group.engine)
        mode = check_cluster(request.cluster_size, request.cluster_mode)
        wanted = request_of(plain, group.options, request.cluster_size, mode, where)
        shape = repr(wanted)
        if shape in agents.fitting or not await self._jit_warmup.is_over(PATIENCE_SECONDS):
            return
        try:
            await _check(agents.states, wanted, where)
        except (NotFound, InsufficientResources):
            now = await self._store.agents(group.name)
            if now == agents.states:
                raise
            self._groups.pop(group.name, None)
            await _check(now, wanted, where)
        else:
            agents.fitting.add(shape)


async def _check(agents: Sequence[AgentState], wanted: Request, where: Where) -> None:
    known = {agent.id for agent in agents}
    if strangers := sorted(set(where.get("agent_list", ())) - known):
        raise NotFound(
            f"resource group {wanted.resource_group} has no agent {', '.join(strangers)[:200]}",
            agents=strangers,
        )
    if not agents:
        return  # no agent is known yet: the session waits
    best = [agent.at_best() for agent in agents]
    refusal = await asyncio.to_thread(_refusal, best, wanted)
    if refusal is not None:
        raise _never(refusal, wanted)


def _refusal(agents: Sequence[AgentState], request: Request) -> Refusal | None:
    """Return why a request does not fit on these agents, None if it does."""
    if request.kernels == 1 and not request.designated_agents:
        found = place(agents, request)
        return found if isinstance(found, Refusal) else None
    placer = Placer(agents, Policy.BEST_FIT)
    shape = placer.prepare(request)
    return None if placer.fits(shape) else placer.refusal(shape)


def _never(refusal: Refusal, request: Request) -> InsufficientResources:
    if request.kernels > 1:
        on = "one agent" if request.mode == Mode.SINGLE_NODE else "its agents"
        what = f"{request.kernels} kernels of {request.slots} on {on}"
        who = f"resource group {request.resource_group}"
    else:
        what, who = str(request.slots), "no agent"
    never = "could never hold" if request.kernels > 1 else "could ever hold"
    return InsufficientResources(
        f"{who} {never} {what}: {refusal.message}",
        kernels=request.kernels,
        shortages=[
            {
                "slot": s.slot,
                "asked": format_amount(s.slot, s.asked),
                "largest": format_amount(s.slot, s.available),
            }
            for s in refusal.shortages
        ],
        devices=any(is_device_slot(slot) for slot in request.slots),
    )
