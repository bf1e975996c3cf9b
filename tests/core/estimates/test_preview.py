"""Preview of a session that is not created: its estimated start, and the caps that apply."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import ScopeCaps
from bai_services.core.scheduling.estimates.estimate import Budget
from bai_services.core.scheduling.estimates.explainer import Choices, Explainer
from bai_services.core.scheduling.estimates.preview import preview
from bai_services.core.scheduling.maintenance import MaintenanceWindow
from bai_services.core.scheduling.placement import AgentState
from bai_services.core.scheduling.queue import (
    Certainty,
    Changes,
    Estimate,
    PendingSession,
    Queue,
    Snapshot,
)

from ..queue.factories import (
    ANN,
    BOB,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
)
from .test_estimate_properties import EXAMPLES, clusters, sessions

NO_LIMIT = Budget(seconds=60)


def queue_after_pass(world: Snapshot) -> Queue:
    queue = Queue(world)
    queue.run(NOW)
    return queue


def test_preview_lists_the_caps_of_a_session_that_starts_now() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", {"cpu": 4000}, max_sessions=3)}
    queue = queue_after_pass(snapshot([], [agent()], caps=caps))
    found = preview(Explainer(queue), Changes([pending_session(1)]), Choices(), NOW)
    assert found.estimate == Estimate(NOW, Certainty.KNOWN)
    assert found.explanation is None
    used = [(cap.scope_id, cap.slot, cap.asked, cap.used, cap.limit) for _, cap in found.caps]
    assert used == [("ann", "cpu", "1", "0", "4"), ("ann", "sessions", "1", "0", "3")]
    assert [is_kept for is_kept, _ in found.caps] == [True, True]


@pytest.mark.parametrize(
    ("agents", "starts_at", "max_run_seconds", "is_named"),
    [
        pytest.param(None, 2, None, True, id="of the group"),
        pytest.param({"a"}, 2, None, True, id="of its agent"),
        pytest.param({"b"}, 2, None, False, id="of another agent"),
        pytest.param(None, 2, 3600, False, id="ends before"),
        pytest.param(None, -2, None, False, id="over"),
    ],
)
def test_preview_names_maintenance_that_may_interrupt_the_session(
    agents: set[str] | None, starts_at: int, max_run_seconds: int | None, is_named: bool
) -> None:
    begin = NOW + timedelta(hours=starts_at)
    window = MaintenanceWindow(
        begin,
        begin + timedelta(hours=1),
        "disks",
        None if agents is None else frozenset(agents),
    )
    queue = queue_after_pass(snapshot([], [agent()], group={"maintenance": (window,)}))
    new = pending_session(1, max_run_seconds=max_run_seconds)
    found = preview(Explainer(queue), Changes([new]), Choices(), NOW)
    assert found.explanation is None
    if not is_named:
        assert found.maintenance is None
        return
    assert found.maintenance is not None
    assert (found.maintenance["check"], found.maintenance["passed"]) == ("maintenance", True)
    assert begin.isoformat() in found.maintenance["message"]


def test_preview_explains_a_session_that_stays_pending() -> None:
    """The preview contains the estimated start, the failed check, and a suggestion."""
    hour = timedelta(hours=1)
    blocker = running("r", BOB, "a", slots(cpu="7"), ends_at=NOW + hour)
    busy = agent(used={"cpu": 7000, "mem": 2**30})
    queue = queue_after_pass(snapshot([], [busy], running=[blocker]))
    new = pending_session(1, wanted=request(cpu="2"))
    found = preview(Explainer(queue), Changes([new]), Choices(), NOW)
    assert found.estimate == Estimate(NOW + hour, Certainty.KNOWN)
    assert found.explanation is not None
    assert [s.kind for s in found.explanation.suggestions] == ["smaller"]
    assert [c["check"] for c in found.explanation.checks if not c["passed"]] == ["resources"]


@EXAMPLES
@given(
    clusters,
    st.lists(st.integers(), min_size=1, max_size=8).flatmap(
        lambda ns: st.tuples(*(sessions(n, priorities=True, depends=True) for n in range(len(ns))))
    ),
)
def test_preview_matches_the_decision_and_explanation_after_creation(
    agents: list[AgentState], jobs: tuple[PendingSession, ...]
) -> None:
    queue = queue_after_pass(snapshot(list(jobs[:-1]), agents))
    pending = sorted(queue.pending_ids())
    new = jobs[-1]
    found = preview(Explainer(queue), Changes([new]), Choices(), NOW, NO_LIMIT)
    again = preview(Explainer(queue), Changes([new]), Choices(), NOW, NO_LIMIT)
    assert again == found
    assert sorted(queue.pending_ids()) == pending

    queue.apply(Changes(pending=[new]))
    starts = {decision.session_id for decision in queue.run(NOW).decisions}
    event("starts now" if new.id in starts else "waits")
    assert (found.explanation is None) == (new.id in starts)
    if found.explanation is None:
        assert found.estimate == Estimate(NOW, Certainty.KNOWN)
    else:
        assert found.estimate == found.explanation.estimate
        assert found.explanation == Explainer(queue, NO_LIMIT).explain(new.id, Choices())
