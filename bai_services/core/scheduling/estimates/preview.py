"""Preview a session that does not exist yet: its estimated start, and the caps that apply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..caps import Violation
from ..maintenance import may_interrupt
from ..queue.explain import MAINTENANCE, reason
from ..queue.model import Certainty, Changes, Estimate, Explanation, Reason
from ..queue.shape import session_slots
from .estimate import Budget
from .explainer import Choices, Explainer


@dataclass(frozen=True, slots=True)
class Preview:
    """Estimated start, caps and explanation of a session as if it were created now.

    ``caps`` has a pair for each cap that applies to the session: whether the session stays within
    the cap, and the cap with the requested amount. ``explanation`` is None if the session would
    start at once. ``maintenance`` is a passed check if the session would start at once and could
    still run when planned maintenance of its agents begins.
    """

    estimate: Estimate
    caps: tuple[tuple[bool, Violation], ...]
    explanation: Explanation | None
    maintenance: Reason | None = None


def preview(
    explainer: Explainer,
    changes: Changes,
    choices: Choices,
    now: datetime,
    budget: Budget | None = None,
) -> Preview:
    """Preview the only pending session in ``changes``.

    Apply the changes to a copy of the explainer's queue, and run a pass on the copy at ``now``.
    ``budget`` limits the simulation that estimates the start.
    """
    queue = explainer.queue.fork_to_run()
    queue.apply(changes)
    (pending,) = changes.pending
    quotas = queue.quotas
    rows, need = quotas.rows(pending.scopes), quotas.need(session_slots(pending))
    caps = tuple(quotas.checks(rows, need))
    result = queue.run(now)
    decision = next((d for d in result.decisions if d.session_id == pending.id), None)
    if decision is not None:
        text = may_interrupt(
            queue.group_queue(pending.request.resource_group).state.maintenance,
            {placement.agent_id for placement in decision.placements},
            now,
            pending.max_run_seconds,
        )
        check = None if text is None else reason(MAINTENANCE, text, passed=True)
        return Preview(Estimate(now, Certainty.KNOWN), caps, None, check)
    explanation = Explainer(queue, budget).explain(pending.id, choices)
    estimate = Estimate(None, Certainty.UNKNOWN) if explanation is None else explanation.estimate
    return Preview(estimate, caps, explanation)
