"""The queue of runs serves the users in turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.pipelines.fair_queue import FairQueue


@dataclass(frozen=True)
class Run:
    id: str
    owner_id: str
    task_count: int = 1


def queue_of(*runs: Run) -> FairQueue[Run]:
    queue: FairQueue[Run] = FairQueue()
    for run in runs:
        queue.add(run)
    return queue


def test_a_user_with_many_runs_does_not_delay_others() -> None:
    many = [Run(f"a{number}", "ann") for number in range(500)]
    queue = queue_of(*many, Run("b", "bob"), Run("c", "cat"))
    assert [run.id for run in queue.take(4, 100)] == ["a0", "b", "c", "a1"]


def test_a_run_that_is_added_again_waits_for_the_other_users() -> None:
    first, *others = [Run("a", "ann"), Run("b", "bob"), Run("c", "cat")]
    queue = queue_of(first, *others)
    assert [run.id for run in queue.take(1, 100)] == ["a"]
    queue.add(first)
    assert [run.id for run in queue.take(3, 100)] == ["b", "c", "a"]


def test_a_run_keeps_its_position_when_it_changes_again() -> None:
    queue = queue_of(Run("a", "ann"), Run("b", "ann"), Run("a", "ann"))
    assert [run.id for run in queue.take(9, 100)] == ["a", "b"]
    assert not queue


def test_a_run_with_more_tasks_than_allowed_is_taken_alone() -> None:
    queue = queue_of(Run("a", "ann", 5000), Run("b", "bob", 1))
    assert [run.id for run in queue.take(9, 2000)] == ["a"]
    assert [run.id for run in queue.take(9, 2000)] == ["b"]


_RUNS = st.lists(
    st.builds(
        Run,
        st.integers(0, 30).map(str),
        st.sampled_from(["ann", "bob", "cat"]),
        st.integers(1, 50),
    ),
    unique_by=lambda run: run.id,
)


@given(_RUNS, st.integers(1, 5), st.integers(1, 100))
def test_every_run_is_taken_once_and_users_alternate(
    runs: list[Run], max_runs: int, max_tasks: int
) -> None:
    queue = queue_of(*runs)
    taken: list[Run] = []
    while batch := queue.take(max_runs, max_tasks):
        assert len(batch) <= max_runs
        assert len(batch) == 1 or sum(run.task_count for run in batch) <= max_tasks
        taken += batch
    assert sorted(run.id for run in taken) == sorted(run.id for run in runs)
    total = Counter(run.owner_id for run in runs)
    for number in range(len(taken) + 1):
        # For users with runs left, the numbers of taken runs differ by at most one.
        served = Counter(run.owner_id for run in taken[:number])
        waiting = [owner for owner in total if served[owner] < total[owner]]
        counts = [served[owner] for owner in waiting]
        assert not counts or max(counts) - min(counts) <= 1
