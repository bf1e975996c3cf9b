"""Simulated rollouts: the bounds hold at every step, and every rollout ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.rollout import (
    Outcome,
    Phase,
    Plan,
    ReplicaState,
    RolloutRules,
    Situation,
    Strategy,
    plan,
)

OLD, NEW = "old", "new"
REPLACED = "replaced"  # a revision whose rollout had not ended when the next rollout began


@dataclass
class Fleet:
    """A simple endpoint that carries out plans; the oracle of the tests."""

    now: Situation
    count: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)

    def number(self, *phases: Phase, revision: str | None = None) -> int:
        return sum(
            each.phase in phases and revision in (None, each.revision_id)
            for each in self.now.replicas
        )

    def carry_out(self, steps: Plan) -> None:
        replicas = []
        for each in self.now.replicas:
            if each.id in steps.end:
                assert each.phase is Phase.STARTING
                continue
            if each.id in steps.drain:
                assert each.phase is Phase.READY
                each = replace(each, phase=Phase.DRAINING)
            replicas.append(each)
        for revision, count in steps.create.items():
            assert count > 0
            for _ in range(count):
                self.count += 1
                replicas.append(ReplicaState(f"n{self.count}", revision, Phase.STARTING))
        self.weights = dict(steps.weights)
        self.now = replace(self.now, replicas=replicas)
        if steps.outcome is not None:
            self.outcomes.append(steps.outcome)
        if steps.outcome is Outcome.COMPLETED:
            self.now = replace(self.now, active=self.now.target, is_promoted=False)
        elif steps.outcome is Outcome.ROLLED_BACK:
            assert self.now.active is not None
            self.now = replace(self.now, target=self.now.active, failures=0)

    def become_ready(self, replica: str) -> None:
        self._change(replica, Phase.READY)

    def fail(self, replica: ReplicaState) -> None:
        left = [each for each in self.now.replicas if each.id != replica.id]
        is_target = replica.revision_id == self.now.target
        self.now = replace(
            self.now, replicas=left, failures=self.now.failures + (1 if is_target else 0)
        )

    def end_drained(self) -> None:
        left = [each for each in self.now.replicas if each.phase is not Phase.DRAINING]
        self.now = replace(self.now, replicas=left)

    def _change(self, replica: str, phase: Phase) -> None:
        self.now = replace(
            self.now,
            replicas=[
                replace(each, phase=phase) if each.id == replica else each
                for each in self.now.replicas
            ],
        )


def fleet(
    desired: int, rules: RolloutRules, *, active: str | None = OLD, ready: int | None = None
) -> Fleet:
    count = desired if ready is None else ready
    replicas = [ReplicaState(f"o{n}", OLD, Phase.READY) for n in range(count if active else 0)]
    return Fleet(Situation(desired, active, NEW, replicas, rules))


def settle(one: Fleet, *, fails: bool = False) -> None:
    """Let every starting replica become ready, or fail, until nothing changes."""
    for _ in range(200):
        steps = plan(one.now)
        before = one.now
        one.carry_out(steps)
        for each in list(one.now.replicas):
            if each.phase is Phase.STARTING:
                if fails and each.revision_id == NEW:
                    one.fail(each)
                else:
                    one.become_ready(each.id)
        one.end_drained()
        if one.now == before and steps.outcome is None:
            return
    raise AssertionError("the rollout does not end")


rules_of = st.builds(
    RolloutRules,
    strategy=st.sampled_from(Strategy),
    max_surge=st.integers(0, 3),
    max_unavailable=st.integers(0, 3),
    canary_percent=st.integers(1, 99),
    is_automatic=st.booleans(),
    max_failures=st.integers(1, 4),
).filter(lambda rules: rules.max_surge + rules.max_unavailable > 0)


@given(desired=st.integers(0, 6), rules=rules_of, data=st.data())
def test_bounds_hold_for_every_order_of_events(
    desired: int, rules: RolloutRules, data: st.DataObject
) -> None:
    one = fleet(desired, rules)
    limit = desired + (rules.max_surge if rules.strategy is Strategy.ROLLING else desired + 1)
    unavailable = rules.max_unavailable if rules.strategy is Strategy.ROLLING else 0
    failed = 0
    for _ in range(data.draw(st.integers(1, 25))):
        ready = one.number(Phase.READY)
        one.carry_out(plan(one.now))
        # A plan never reduces the ready replicas below the guaranteed number.
        assert one.number(Phase.READY) >= min(ready, desired - unavailable)
        if Outcome.ROLLED_BACK not in one.outcomes:
            assert one.number(Phase.STARTING, Phase.READY) <= max(limit, ready)
        assert set(one.weights) <= {OLD, NEW}
        event = data.draw(st.sampled_from(["ready", "fail", "drained"]))
        starting = [each for each in one.now.replicas if each.phase is Phase.STARTING]
        if event == "ready" and starting:
            one.become_ready(data.draw(st.sampled_from(starting)).id)
        elif event == "fail" and one.now.replicas:
            failed += 1
            one.fail(data.draw(st.sampled_from(one.now.replicas)))
        elif event == "drained":
            one.end_drained()
    one.now = replace(one.now, is_promoted=True)
    settle(one)
    # In the end, exactly the desired replicas of one revision remain.
    assert one.now.active == one.now.target
    assert one.number(Phase.READY, revision=one.now.target) == desired
    assert len(one.now.replicas) == desired
    assert one.outcomes.count(Outcome.FAILED) == 0
    assert one.outcomes[-1] is Outcome.COMPLETED or failed >= rules.max_failures


@given(
    desired=st.integers(1, 6),
    replaced=st.integers(1, 6),
    rules=rules_of,
)
def test_replicas_of_a_replaced_rollout_serve_until_there_are_enough_others(
    desired: int, replaced: int, rules: RolloutRules
) -> None:
    serving = {OLD: max(0, desired - replaced), REPLACED: min(desired, replaced)}
    replicas = [
        ReplicaState(f"{revision}{n}", revision, Phase.READY)
        for revision, count in serving.items()
        for n in range(count)
    ]
    one = Fleet(Situation(desired, OLD, NEW, replicas, rules))
    unavailable = rules.max_unavailable if rules.strategy is Strategy.ROLLING else 0
    first = plan(one.now)
    if rules.strategy is not Strategy.ROLLING:
        assert (first.drain, first.end) == ((), ())
        total = sum(first.weights.values())
        shares = {name: weight / total for name, weight in first.weights.items()}
        assert shares == pytest.approx(
            {name: count / desired for name, count in serving.items() if count}
        )
    for _ in range(20):
        one.carry_out(plan(one.now))
        assert one.number(Phase.READY) >= desired - unavailable
        is_canary = rules.strategy is Strategy.CANARY
        has_new = one.number(Phase.READY, revision=NEW) > 0
        if is_canary and has_new and not one.outcomes:
            share = one.weights[NEW] / sum(one.weights.values())
            assert share == pytest.approx(rules.canary_percent / 100)
        for each in one.now.replicas:
            if each.phase is Phase.STARTING:
                one.become_ready(each.id)
                break
        one.end_drained()
    one.now = replace(one.now, is_promoted=True)
    settle(one)
    assert one.number(Phase.READY, revision=NEW) == desired == len(one.now.replicas)


@given(desired=st.integers(1, 6), rules=rules_of)
def test_a_revision_that_never_becomes_healthy_is_rolled_back(
    desired: int, rules: RolloutRules
) -> None:
    one = fleet(desired, rules)
    settle(one, fails=True)
    assert one.outcomes == [Outcome.ROLLED_BACK]
    assert (one.now.active, one.now.target) == (OLD, OLD)
    assert one.number(Phase.READY, revision=OLD) == desired == len(one.now.replicas)


def test_first_deployment_that_fails_has_nothing_to_roll_back_to() -> None:
    one = fleet(2, RolloutRules(max_failures=2), active=None)
    one.now = replace(one.now, failures=2)
    steps = plan(one.now)
    assert (steps.outcome, dict(steps.create)) == (Outcome.FAILED, {})


def test_first_deployment_completes_when_all_replicas_are_ready() -> None:
    one = fleet(2, RolloutRules(), active=None)
    settle(one)
    assert one.outcomes == [Outcome.COMPLETED]
    assert one.number(Phase.READY, revision=NEW) == 2


def test_blue_green_waits_for_its_promotion_and_then_switches_at_once() -> None:
    one = fleet(3, RolloutRules(Strategy.BLUE_GREEN, is_automatic=False))
    settle(one)
    assert (one.number(Phase.READY, revision=OLD), one.number(Phase.READY, revision=NEW)) == (3, 3)
    assert (one.weights, one.outcomes) == ({OLD: 100}, [])
    one.now = replace(one.now, is_promoted=True)
    steps = plan(one.now)
    assert dict(steps.weights) == {NEW: 100}
    assert sorted(steps.drain) == ["o0", "o1", "o2"]
    assert steps.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(("percent", "replicas"), [(1, 1), (25, 1), (26, 2), (90, 4)])
def test_canary_gets_its_share_of_requests_with_as_few_replicas(
    percent: int, replicas: int
) -> None:
    rules = RolloutRules(Strategy.CANARY, canary_percent=percent, is_automatic=False)
    one = fleet(4, rules)
    settle(one)
    assert one.number(Phase.READY, revision=NEW) == replicas
    assert one.weights == {NEW: percent, OLD: 100 - percent}
    one.now = replace(one.now, is_promoted=True)
    settle(one)
    assert (one.weights, one.outcomes) == ({NEW: 100}, [Outcome.COMPLETED])


def test_stopped_endpoint_has_no_replicas() -> None:
    one = fleet(2, RolloutRules())
    one.now = replace(one.now, is_stopped=True)
    settle(one)
    assert one.now.replicas == []
    assert dict(plan(one.now).create) == {}


def test_scaling_down_ends_replicas_that_do_not_serve_and_then_the_newest() -> None:
    replicas = [
        ReplicaState("a", OLD, Phase.READY),
        ReplicaState("b", OLD, Phase.STARTING),
        ReplicaState("c", OLD, Phase.READY),
    ]
    steps = plan(Situation(1, OLD, OLD, replicas))
    assert (steps.end, steps.drain) == (("b",), ("c",))


def test_scaling_down_frees_the_emptiest_agent_first() -> None:
    replicas = [
        ReplicaState("a", OLD, Phase.READY, agent_kernels=2),
        ReplicaState("b", OLD, Phase.READY, agent_kernels=1),
        ReplicaState("c", OLD, Phase.READY, agent_kernels=2),
        ReplicaState("d", OLD, Phase.STARTING, agent_kernels=9),
    ]
    drained = []
    for desired in (3, 2, 1):
        steps = plan(Situation(desired, OLD, OLD, replicas))
        assert steps.end == ("d",)
        drained.append(set(steps.drain))
    assert drained == [set(), {"b"}, {"b", "c"}]


def test_nothing_is_created_during_the_pause_after_failures() -> None:
    assert dict(plan(Situation(2, OLD, OLD, [], may_create=False)).create) == {}
    rules = RolloutRules(Strategy.BLUE_GREEN, is_automatic=False)
    assert dict(plan(Situation(1, OLD, NEW, [], rules)).create) == {OLD: 1, NEW: 1}
    assert dict(plan(Situation(1, OLD, NEW, [], rules, may_restore=False)).create) == {NEW: 1}


def test_errors_restore_the_former_revision_and_requests_promote_a_canary() -> None:
    rules = RolloutRules(Strategy.CANARY, canary_percent=20, max_error_percent=5, min_requests=100)
    one = fleet(2, rules)
    settle(one)
    # The weights do not change before the canary has received the minimum number of requests.
    assert (one.weights, one.outcomes) == ({NEW: 20, OLD: 80}, [])
    # 5 errors can be 5 % of the first 100 requests; 6 errors exceed the limit in any case.
    for requests, errors, outcome in (
        (9, 5, None), (9, 6, Outcome.ROLLED_BACK), (100, 5, Outcome.COMPLETED),
        (1000, 51, Outcome.ROLLED_BACK),
    ):  # fmt: skip
        other = fleet(2, rules)
        settle(other)
        other.now = replace(other.now, requests=requests, errors=errors)
        settle(other)
        assert other.outcomes == ([] if outcome is None else [outcome])
    # An explicit promotion does not wait for requests. Rollouts with other strategies are rolled
    # back, too.
    one.now = replace(one.now, is_promoted=True)
    settle(one)
    assert one.outcomes == [Outcome.COMPLETED]
    rolling = fleet(2, replace(rules, strategy=Strategy.ROLLING))
    rolling.now = replace(rolling.now, requests=9, errors=6)
    assert plan(rolling.now).outcome is Outcome.ROLLED_BACK
    first = fleet(2, rules, active=None)
    first.now = replace(first.now, requests=9, errors=9)
    assert plan(first.now).outcome is None


@given(
    rules=st.builds(
        RolloutRules,
        strategy=st.just(Strategy.CANARY),
        canary_percent=st.integers(1, 99),
        max_error_percent=st.none() | st.integers(0, 20),
        max_p99_ms=st.none() | st.integers(10, 1000),
        min_requests=st.integers(1, 200),
        min_seconds=st.integers(0, 600),
    ),
    steps=st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 20), st.integers(1, 1500)), max_size=15
    ),
)
def test_canary_is_promoted_only_within_its_bounds(
    rules: RolloutRules, steps: list[tuple[int, int, int]]
) -> None:
    """Requests, errors and p99 are reported in steps; the oracle decides from the totals."""
    one = fleet(2, rules)
    requests = errors = 0
    expected: list[Outcome] = []
    for number, (more, failed, p99) in enumerate(steps):
        requests, errors = requests + more, errors + min(more, failed)
        seconds = 60.0 * number if requests else 0.0
        one.now = replace(
            one.now,
            requests=requests,
            errors=errors,
            p99_ms=p99 if requests else None,
            observed_seconds=seconds,
        )
        settle(one)
        checks = (rules.max_error_percent, rules.max_p99_ms)
        has_enough = requests >= rules.min_requests
        is_bad = rules.max_error_percent is not None and errors > (
            rules.max_error_percent * max(requests, rules.min_requests) / 100
        )
        is_slow = has_enough and rules.max_p99_ms is not None and p99 > rules.max_p99_ms
        if is_bad or is_slow:
            expected = [Outcome.ROLLED_BACK]
        elif (has_enough or checks == (None, None)) and seconds >= rules.min_seconds:
            expected = [Outcome.COMPLETED]
        assert one.outcomes == expected
        if expected:
            break
    remaining = NEW if expected == [Outcome.COMPLETED] else OLD
    assert one.number(Phase.READY, revision=remaining) == 2


def test_latency_restores_the_former_revision_after_enough_requests() -> None:
    one = fleet(2, RolloutRules(max_p99_ms=200, min_requests=50))
    one.now = replace(one.now, requests=49, p99_ms=900.0)
    assert plan(one.now).outcome is None
    one.now = replace(one.now, requests=50)
    assert plan(one.now).outcome is Outcome.ROLLED_BACK
    assert plan(replace(one.now, p99_ms=200.0)).outcome is None
    assert plan(replace(one.now, active=None)).outcome is None


@given(
    rules=rules_of,
    desired=st.integers(0, 6),
    ready=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    starting=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_ready_canaries_remain_while_the_former_revision_lacks_ready_replicas(
    rules: RolloutRules, desired: int, ready: tuple[int, int], starting: tuple[int, int]
) -> None:
    rules = replace(rules, strategy=Strategy.CANARY, is_automatic=False)
    replicas = [
        ReplicaState(f"{revision}-{phase}-{number}", revision, phase)
        for phase, counts in ((Phase.READY, ready), (Phase.STARTING, starting))
        for revision, count in zip((OLD, NEW), counts, strict=True)
        for number in range(count)
    ]
    steps = plan(Situation(desired, OLD, NEW, replicas, rules))
    if ready[0] < desired:
        assert steps.drain == ()
