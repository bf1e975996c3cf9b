"""Admission checks: whether a request could ever run, and whether the caller may choose agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.cluster.devices import is_device_slot
from bai_services.core.cluster.provisioning import OFF
from bai_services.core.errors import InsufficientResources, InvalidRequest, NotFound
from bai_services.core.resources import ResourceSlots, format_amount
from bai_services.core.scheduling import caps as policy
from bai_services.core.scheduling.machine_demand import provisionable_agents
from bai_services.core.scheduling.placement import (
    AgentState,
    Designation,
    Mode,
    Placer,
    Policy,
    Refusal,
    Request,
    place_first_kernel,
)
from bai_services.core.sessions.group_request import check_cluster, request_of
from bai_services.core.sessions.kernel_group import total_slots
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

PlacementOptions = dict[str, Any]

# Cache lifetime of the agents of a group.
CACHE_TTL_SECONDS = 5.0
# Maximum wait of a request for the compilation of the placement code; clients time out later.
WARMUP_TIMEOUT_SECONDS = 15.0


def placement_options(
    caller: Caller, project: ProjectFacts, owner: OwnerFacts, request: SessionSpec
) -> PlacementOptions:
    """Return the placement options of a request in the form stored with the session.

    Raises
    ------
    Forbidden
        If the request designates agents and the caller does not administer the domain.
    InvalidRequest
        If agent_selection is not valid.
    """
    options: PlacementOptions = request.options()
    if not request.agent_list:
        options.pop("agent_selection", None)
        return options
    target = Target(project.domain, project.id, Owner(owner.id, owner.role))
    authorizer.require(caller, "session.designate", target)
    if request.agent_selection not in set(Designation):
        raise InvalidRequest(
            f"{request.agent_selection[:40]!r} is not a valid agent_selection; use one of "
            f"{', '.join(Designation)}",
            field="agent_selection",
        )
    options["agent_list"] = list(dict.fromkeys(request.agent_list))
    options["agent_selection"] = request.agent_selection
    return options


def check_caps(facts: AdmissionFacts, slots: ResourceSlots, request: SessionSpec) -> None:
    """Raise if a limit would exclude the request even on an empty cluster.

    Raises
    ------
    InvalidRequest
        If the cluster size or mode is invalid.
    QuotaExceeded
        If there is such a limit; the error contains all of them.
    """
    size = request.cluster_size
    check_cluster(size, request.cluster_mode)
    caps = facts.caps_in_order
    violations = policy.violations(caps, total_slots(slots, size), facts.usage, ever=True)
    policy.raise_if_violated([*violations, *policy.container_violations(caps, size)])


@dataclass(slots=True)
class GroupAgents:
    """Cached agents of a resource group, and the requests that are known to fit there."""

    states: Sequence[AgentState]
    read_at: float
    fitting: set[str] = field(default_factory=set)


class FittingAgents:
    """Checks whether the agents of a resource group could ever run a request.

    The agents are cached, but a request is only rejected after reading them again. If an agent has
    left since the cached read, an accepted session stays pending. If the placement code is not
    compiled in time, the request is accepted and the queue decides.
    """

    def __init__(
        self, store: RequestStore, jit_warmup: JitWarmup, *, has_provisioning: bool
    ) -> None:
        """``has_provisioning``: whether this installation has a command that starts machines."""
        self._has_provisioning = has_provisioning
        self._store = store
        self._jit_warmup = jit_warmup
        self._groups: dict[str, GroupAgents] = {}

    async def of(self, group: str) -> GroupAgents:
        """Return the agents of a resource group, at most ``CACHE_TTL_SECONDS`` old."""
        cached = self._groups.get(group)
        if cached is not None and time.monotonic() - cached.read_at <= CACHE_TTL_SECONDS:
            return cached
        read = GroupAgents(await self._store.agents(group), time.monotonic())
        if read.states:
            self._groups[group] = read
        return read

    async def check(
        self,
        agents: GroupAgents,
        slots: ResourceSlots,
        target: tuple[GroupFacts, str],
        request: SessionSpec,
        options: PlacementOptions,
    ) -> None:
        """Raise if neither the agents, even if they were idle, nor machines that provisioning can
        start could run the request.

        ``target`` is the resource group and the architecture of the image.

        Raises
        ------
        NotFound
            If a designated agent is not in the group.
        InsufficientResources
            If the agents could never run it; the details contain the missing resources.
        """
        group, architecture = target
        single = Request(slots, group.name, architecture, group.engine)
        mode = check_cluster(request.cluster_size, request.cluster_mode)
        full_request = request_of(single, group.options, request.cluster_size, mode, options)
        shape = repr(full_request)
        if shape in agents.fitting or not await self._jit_warmup.wait(WARMUP_TIMEOUT_SECONDS):
            return
        provisioning = group.options.provisioning if self._has_provisioning else OFF
        machines = provisionable_agents(
            provisioning, group.name, group.engine, request.cluster_size
        )
        try:
            await _check([*agents.states, *machines], full_request, options)
        except (NotFound, InsufficientResources):
            current = await self._store.agents(group.name)
            if current == agents.states:
                raise
            self._groups.pop(group.name, None)
            await _check([*current, *machines], full_request, options)
        else:
            agents.fitting.add(shape)


async def _check(
    agents: Sequence[AgentState], full_request: Request, options: PlacementOptions
) -> None:
    known = {agent.id for agent in agents}
    if unknown := sorted(set(options.get("agent_list", ())) - known):
        raise NotFound(
            f"resource group {full_request.resource_group} has no agent {', '.join(unknown)[:200]}",
            agents=unknown,
        )
    if not agents:
        return  # accept if no agent has registered yet: the session stays pending
    best = [agent.fully_available() for agent in agents]
    refusal = await asyncio.to_thread(_refusal, best, full_request)
    if refusal is not None:
        raise _insufficient(refusal, full_request)


def _refusal(agents: Sequence[AgentState], request: Request) -> Refusal | None:
    """Return why a request does not fit on these agents; None if it fits."""
    if request.kernels == 1 and not request.designated_agents:
        placed = place_first_kernel(agents, request)
        return placed if isinstance(placed, Refusal) else None
    placer = Placer(agents, Policy.BEST_FIT)
    shape = placer.prepare(request)
    return None if placer.fits(shape) else placer.refusal(shape)


def _insufficient(refusal: Refusal, request: Request) -> InsufficientResources:
    if request.kernels > 1:
        on = "one agent" if request.mode == Mode.SINGLE_NODE else "its agents"
        needed = f"{request.kernels} kernels of {request.slots} on {on}"
        subject = f"resource group {request.resource_group}"
    else:
        needed, subject = str(request.slots), "no agent"
    verb = "could never hold" if request.kernels > 1 else "could ever hold"
    shortages = "; ".join(s.message_when_unused or str(s.text) for s in refusal.shortages)
    why = f"resource group {request.resource_group}: {shortages}" if shortages else refusal.text
    return InsufficientResources(
        f"{subject} {verb} {needed}: {why}",
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
