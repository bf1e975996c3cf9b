"""The state machine of runs against an oracle that evaluates a DAG recursively."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import Conflict
from bai_services.core.pipelines.definition import (
    Cache,
    Condition,
    ForEach,
    Operator,
    PipelineDefinition,
    RunIf,
    Task,
    TaskKind,
)
from bai_services.core.pipelines.states import (
    ACTIVE,
    RUN_ENDED,
    TASK_ENDED,
    Outcome,
    Plan,
    RunStatus,
    TaskRun,
    TaskStatus,
    advance,
    cancelled,
    observe,
    resumed,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
Key = tuple[str, int]
S = TaskStatus
# Without the kind pipeline: such a task also needs the tasks of its sub-pipeline.
KINDS = [kind for kind in TaskKind if kind is not TaskKind.PIPELINE]


@dataclass(frozen=True)
class Case:
    """A DAG, and the outcome of each attempt (True: success). ``cached``: attempts whose outputs
    are taken from an earlier run.
    """

    plan: Plan
    results: Mapping[tuple[str, int, int], bool]
    cached: Set[tuple[str, int, int]]

    def succeeds(self, task: str, index: int, attempt: int) -> bool:
        return self.results.get((task, index, attempt), True)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 9))
    tasks: list[Task] = []
    results: dict[tuple[str, int, int], bool] = {}
    cached: set[tuple[str, int, int]] = set()
    for number in range(count):
        name = f"t{number}"
        kind = draw(st.sampled_from([TaskKind.COMMAND] * 4 + KINDS))
        has_session = kind in (TaskKind.COMMAND, TaskKind.NOTEBOOK)
        items = draw(st.sampled_from([None, None, 0, 1, 3])) if has_session else None
        retries = draw(st.integers(0, 2)) if has_session else 0
        has_cache = has_session and draw(st.booleans())
        for index in range(1 if items is None else items):
            for attempt in range(1, 10):
                is_success = draw(st.sampled_from([True, True, False]))
                results[name, index, attempt] = is_success
                if has_cache and is_success and draw(st.booleans()):
                    cached.add((name, index, attempt))
        condition = Condition("level", Operator.MORE, draw(st.integers(0, 1)))
        tasks.append(
            Task(
                name,
                kind=kind,
                condition=condition if kind is TaskKind.CONDITION else None,
                needs=draw(st.lists(st.sampled_from([t.name for t in tasks]), unique=True))
                if tasks
                else (),
                run_if=draw(st.sampled_from([RunIf.SUCCESS] * 3 + list(RunIf))),
                for_each=None
                if items is None
                else ForEach(values=["x"] * items, max_parallel=draw(st.integers(0, 2))),
                retries=retries,
                continue_on_failure=draw(st.sampled_from([False, False, True])),
                skip=draw(st.sampled_from([False] * 5 + [True])),
                cache=Cache() if has_cache else None,
            )
        )
    definition = PipelineDefinition("p", tasks=tasks, max_parallel_tasks=draw(st.integers(1, 4)))
    return Case(Plan.of(definition, {"level": 1}), results, cached)


def oracle(case: Case) -> dict[Key, TaskStatus]:
    """Return the final statuses, computed recursively from the definition."""

    def expected(task: Task, index: int) -> TaskStatus:
        if task.skip:
            return S.BYPASSED
        if task.kind is TaskKind.CONDITION:
            assert task.condition is not None
            return S.SUCCEEDED if task.condition.value < 1 else S.SKIPPED  # type: ignore[operator]
        attempts = range(1, task.retries + 2)
        is_success = any(case.succeeds(task.name, index, attempt) for attempt in attempts)
        return S.SUCCEEDED if is_success else S.FAILED

    def result(task: Task) -> str:
        # A map without values gets the result of the tasks on which it depends.
        found = set(final(task.name).values()) or {prevented(task) or S.SUCCEEDED}
        if task.continue_on_failure and S.FAILED in found:
            found = (found - {S.FAILED}) | {S.SUCCEEDED}
        if found & {S.FAILED, S.BLOCKED}:
            return "failure"
        return "skipped" if found == {S.SKIPPED} else "success"

    def prevented(task: Task) -> TaskStatus | None:
        """Return the status of a task that does not run."""
        needs = [result(case.plan.tasks[need]) for need in task.needs]
        if task.run_if is RunIf.SUCCESS and "failure" in needs:
            return S.BLOCKED
        if (task.run_if is RunIf.SUCCESS and "skipped" in needs) or (
            task.run_if is RunIf.FAILURE and "failure" not in needs
        ):
            return S.SKIPPED
        if task.run_if is RunIf.ANY_SUCCESS and needs and "success" not in needs:
            return S.BLOCKED if "failure" in needs else S.SKIPPED
        return None

    @cache
    def final(name: str) -> Mapping[int, TaskStatus]:
        task = case.plan.tasks[name]
        count = 1 if task.for_each is None else len(task.for_each.values)
        status = prevented(task)
        return {index: status or expected(task, index) for index in range(count)}

    return {(name, i): status for name in case.plan.tasks for i, status in final(name).items()}


def expected_marks(case: Case, final: Mapping[Key, TaskStatus]) -> set[Key]:
    """Return the task runs whose first successful attempt was taken from the cache."""
    marks = set()
    for (name, index), status in final.items():
        task = case.plan.tasks[name]
        if status is S.SUCCEEDED and task.cache is not None:
            attempts = range(1, task.retries + 2)
            first = next(n for n in attempts if case.succeeds(name, index, n))
            if (name, index, first) in case.cached:
                marks.add((name, index))
    return marks


class Simulation:
    """Applies events in a random order, and checks the limits after each step."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = random.Random(seed)
        self.now = NOW
        self.runs: dict[Key, TaskRun] = {
            (run.task, run.index): run for run in case.plan.first_runs()
        }
        self.status = RunStatus.RUNNING
        self.started: list[tuple[str, int, int]] = []
        self.advance()

    def advance(self) -> None:
        before = dict(self.runs)
        progress = advance(self.case.plan, list(self.runs.values()), self.status, self.now)
        for run in progress.changed:
            old = before[run.task, run.index]
            assert run != old
            if run.status is S.QUEUED:
                assert self.status is RunStatus.RUNNING
                assert run.attempt == old.attempt + 1
                assert old.retry_at is None or old.retry_at <= self.now
                self.started.append((run.task, run.index, run.attempt))
                for need in self.case.plan.tasks[run.task].needs:
                    of_need = [each for key, each in before.items() if key[0] == need]
                    changed = {(r.task, r.index) for r in progress.changed}
                    assert all(
                        each.status in TASK_ENDED or (need, each.index) in changed
                        for each in of_need
                    )
            self.runs[run.task, run.index] = run
        self.status = progress.status
        self.check_limits()
        # A further call changes nothing, because no event is left.
        again = advance(self.case.plan, list(self.runs.values()), self.status, self.now)
        assert (list(again.changed), again.status) == ([], self.status)

    def check_limits(self) -> None:
        active = [run for run in self.runs.values() if run.status in ACTIVE]
        assert len(active) <= self.case.plan.definition.max_parallel_tasks
        for task in self.case.plan.definition.tasks:
            if task.for_each and task.for_each.max_parallel:
                own = [run for run in active if run.task == task.name]
                assert len(own) <= task.for_each.max_parallel

    def step(self) -> bool:
        """Apply one event; return False if there is none."""
        choices = [run for run in self.runs.values() if run.status in {*ACTIVE, S.APPROVAL}]
        times = [run.retry_at for run in self.runs.values() if run.retry_at]
        if times and (not choices or self.random.random() < 0.3):
            self.now = max(self.now, min(times))
        elif choices:
            run = self.random.choice(choices)
            self.apply(run, self._outcome(run))
        else:
            return False
        self.advance()
        return True

    def _outcome(self, run: TaskRun) -> Outcome:
        if run.status is S.APPROVAL:
            # Use attempt 1, because approvals have no attempts.
            is_approved = self.case.succeeds(run.task, run.index, 1)
            return Outcome.APPROVED if is_approved else Outcome.REJECTED
        if run.status is S.QUEUED and self.random.random() < 0.5:
            return Outcome.STARTED
        if not self.case.succeeds(run.task, run.index, run.attempt):
            return Outcome.FAILED
        is_cached = (run.task, run.index, run.attempt) in self.case.cached
        return Outcome.CACHED if is_cached else Outcome.SUCCEEDED

    def apply(self, run: TaskRun, outcome: Outcome) -> None:
        task = self.case.plan.tasks[run.task]
        is_cancelling = self.status is RunStatus.CANCELLING
        after = observe(task, run, outcome, self.now, is_cancelling=is_cancelling)
        if after.status in TASK_ENDED:
            # Repeated and late events change nothing.
            for late in Outcome:
                assert observe(task, after, late, self.now) == after
        self.runs[run.task, run.index] = after

    def finish(self) -> dict[Key, TaskStatus]:
        while self.step():
            pass
        assert self.status in RUN_ENDED
        return {key: run.status for key, run in self.runs.items()}


@pytest.mark.checklist("JOB-05")
@given(cases(), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_final_states_are_those_of_the_oracle_in_any_order(case: Case, seed: int) -> None:
    simulation = Simulation(case, seed)
    found = simulation.finish()
    assert found == oracle(case)
    marks = {key for key, run in simulation.runs.items() if run.is_cached}
    assert marks == expected_marks(case, found)
    assert len(simulation.started) == len(set(simulation.started))
    tolerated = {task.name for task in case.plan.definition.tasks if task.continue_on_failure}
    is_failed = any(
        status is S.BLOCKED or (status is S.FAILED and name not in tolerated)
        for (name, _), status in found.items()
    )
    assert simulation.status is (RunStatus.FAILED if is_failed else RunStatus.SUCCEEDED)


@given(cases(), st.integers(0, 2**32), st.integers(0, 8))
@settings(max_examples=200, deadline=None)
def test_cancelled_run_starts_nothing_more(case: Case, seed: int, steps: int) -> None:
    simulation = Simulation(case, seed)
    for _ in range(steps):
        simulation.step()
    if simulation.status in RUN_ENDED:
        return
    simulation.status = RunStatus.CANCELLING
    started = len(simulation.started)
    for key, run in simulation.runs.items():
        simulation.runs[key] = cancelled(run, has_session=simulation.random.random() < 0.5)
    simulation.advance()
    simulation.finish()
    assert simulation.status is RunStatus.CANCELLED
    assert len(simulation.started) == started


@given(cases(), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_resumed_run_repeats_only_what_has_not_succeeded(case: Case, seed: int) -> None:
    simulation = Simulation(case, seed)
    before = simulation.finish()
    if simulation.status is RunStatus.SUCCEEDED:
        with pytest.raises(Conflict):
            resumed(case.plan, list(simulation.runs.values()), simulation.status)
        return
    attempts = {key: run.attempt for key, run in simulation.runs.items()}
    failed = {key for key, status in before.items() if status in (S.FAILED, S.BLOCKED)}
    after = descendants(case.plan, {name for name, _ in failed})
    # From now on, all attempts succeed.
    simulation.case = replace(case, results={}, cached=set())
    for run in resumed(case.plan, list(simulation.runs.values()), simulation.status):
        simulation.runs[run.task, run.index] = run
    simulation.status = RunStatus.RUNNING
    simulation.advance()
    simulation.finish()
    assert simulation.status is RunStatus.SUCCEEDED
    for key, run in simulation.runs.items():
        assert run.attempt <= attempts[key] + 1
        if key not in failed and key[0] not in after:
            assert (run.status, run.attempt) == (before[key], attempts[key])


def descendants(plan: Plan, names: set[str]) -> set[str]:
    found: set[str] = set()
    for task in plan.definition.tasks:
        if (names | found).intersection(task.needs):
            found.add(task.name)
    return found


def test_pauses_between_attempts_double() -> None:
    task = Task("t", command="x", retries=3, retry_delay_seconds=10)
    run = TaskRun("t", status=S.QUEUED, attempt=1)
    pauses: list[timedelta] = []
    for _ in range(3):
        run = observe(task, run, Outcome.FAILED, NOW)
        assert run.retry_at is not None
        pauses.append(run.retry_at - NOW)
        run = replace(run, status=S.QUEUED)
    assert pauses == [timedelta(seconds=seconds) for seconds in (10, 20, 40)]
    assert observe(task, run, Outcome.FAILED, NOW).status is S.FAILED


def test_stopped_session_is_not_retried() -> None:
    task = Task("t", command="x", retries=3)
    run = TaskRun("t", status=S.RUNNING, attempt=1)
    assert observe(task, run, Outcome.STOPPED, NOW).status is S.FAILED


def states(runs: Sequence[TaskRun]) -> list[TaskStatus]:
    return [run.status for run in runs]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(Outcome.STARTED, S.WAITING, id="not before the needed tasks have ended"),
        pytest.param(Outcome.SUCCEEDED, S.QUEUED, id="after a success"),
        pytest.param(Outcome.FAILED, S.BLOCKED, id="not after a failure"),
    ],
)
def test_empty_map_has_the_result_of_the_tasks_that_it_needs(
    outcome: Outcome, expected: TaskStatus
) -> None:
    tasks = [
        Task("a", command="x"),
        Task("b", command="x", needs=["a"], for_each=ForEach(values=[])),
        Task("c", command="x", needs=["b"]),
    ]
    plan = Plan.of(PipelineDefinition("p", tasks=tasks), {})
    first = observe(tasks[0], TaskRun("a", status=S.QUEUED, attempt=1), outcome, NOW)
    progress = advance(plan, [first, TaskRun("c")], RunStatus.RUNNING, NOW)
    assert states(progress.changed) == ([] if expected is S.WAITING else [expected])


def test_cached_task_succeeds_and_is_marked() -> None:
    task = Task("fit", command="x", outputs=["model"])
    plan = Plan.of(PipelineDefinition("p", tasks=[task, Task("end", command="y")]), {})
    run = observe(task, TaskRun("fit", status=S.RUNNING, attempt=1), Outcome.CACHED, NOW)
    assert (run.status, run.is_cached) == (S.SUCCEEDED, True)
    failed = TaskRun("end", status=S.FAILED, attempt=1)
    # Only the tasks that run again are no longer marked as cached.
    assert resumed(plan, [run, failed], RunStatus.FAILED) == [TaskRun("end", attempt=1)]
    cached = replace(run, status=S.CANCELLED)
    (again,) = resumed(plan, [cached], RunStatus.CANCELLED)
    assert not again.is_cached
