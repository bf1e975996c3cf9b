"""Placement of a single request, without a long-lived ``Placer``."""

from __future__ import annotations

from collections.abc import Sequence

from ..placement_options import Policy
from .model import AgentState, Placement, Refusal, Request
from .placer import Placer


def place_first_kernel(agents: Sequence[AgentState], request: Request) -> Placement | Refusal:
    """Return the best-fit placement of a request's first kernel, or why the request does not fit.

    A request fits only if all its kernels fit.
    """
    group_agents = sorted(
        (a for a in agents if a.resource_group == request.resource_group), key=lambda a: a.id
    )
    placer = Placer(group_agents, Policy.BEST_FIT)
    handle = placer.prepare(request)
    placements = placer.place(handle)
    return placer.refusal(handle) if placements is None else placements[0]
