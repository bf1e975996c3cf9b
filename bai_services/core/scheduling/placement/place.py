"""Placement check for one request, for callers that only ask whether and where it would fit."""

from __future__ import annotations

from collections.abc import Sequence

from .model import AgentState, Placement, Policy, Refusal, Request
from .placer import Placer


def place(agents: Sequence[AgentState], request: Request) -> Placement | Refusal:
    """Return where the first kernel of a request would go by best fit, or why it does not fit.

    Either all kernels fit or none. A pass uses a long-lived ``Placer`` instead.
    """
    mine = sorted(
        (a for a in agents if a.resource_group == request.resource_group), key=lambda a: a.id
    )
    placer = Placer(mine, Policy.BEST_FIT)
    shape = placer.prepare(request)
    placements = placer.place(shape)
    return placer.refusal(shape) if placements is None else placements[0]
