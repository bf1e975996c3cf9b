"""Rollouts of endpoints (rolling update, blue-green, canary): which replicas to create and end.

``plan`` is a pure function of the stored state. It is repeated until the desired state is reached,
so a rollout may be interrupted at any point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import gcd

# The weight of a revision that gets all requests.
ALL_REQUESTS = 100


class Strategy(StrEnum):
    ROLLING = "rolling"
    BLUE_GREEN = "blue-green"
    CANARY = "canary"


class Phase(StrEnum):
    """Phase of a replica. ``starting``: the session waits or starts, or the health check does not
    pass yet. ``ready``: the replica receives requests. ``draining``: it finishes its requests.
    ``stopping``: its session is being stopped. ``ended``: its session has ended.
    """

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    ENDED = "ended"


LIVE_PHASES = (Phase.STARTING, Phase.READY)


class Outcome(StrEnum):
    """Outcome of a rollout. ``completed``: only the new revision serves. ``rolled-back``: the new
    revision was given up, and the former revision serves. ``failed``: the new revision was given
    up, and there is no former revision. ``replaced``: another revision became the target before the
    rollout ended. ``saved``: there was no rollout.
    """

    COMPLETED = "completed"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"
    REPLACED = "replaced"
    SAVED = "saved"


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """How a new revision replaces the former revision.

    ``max_surge``, ``max_unavailable``: only for rolling updates. ``canary_percent``: only for
    canaries. ``is_automatic``: if false, blue-green and canary rollouts wait for a promotion. A new
    revision is given up in three cases: after ``max_failures`` failed replicas; if more than
    ``max_error_percent`` of its requests fail; or if the 99th percentile of its latency exceeds
    ``max_p99_ms``. A limit that is None is not checked. ``min_requests``: minimum number of
    requests for the last two checks. An automatic canary with such a check is promoted only after
    this number of requests. ``min_seconds``: minimum time for which an
    automatic canary is observed, from its first request.
    """

    strategy: Strategy = Strategy.ROLLING
    max_surge: int = 1
    max_unavailable: int = 0
    canary_percent: int = 10
    is_automatic: bool = True
    max_failures: int = 3
    max_error_percent: int | None = None
    min_requests: int = 100
    max_p99_ms: int | None = None
    min_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica. ``agent_kernels``: number of kernels on its agent. 0 if it has no agent; also 0 if
    the endpoint has no surplus replicas, because the number is then not needed.
    """

    id: str
    revision_id: str
    phase: Phase
    agent_kernels: int = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of an endpoint.

    ``active``: the revision that served before the rollout, None before the first rollout.
    ``target``: the desired revision; without a rollout in progress, it equals ``active``.
    ``replicas`` are in order of creation. The next fields refer to the target since the rollout
    began. ``failures``: failed replicas. ``requests``, ``errors``: requests and failed requests.
    ``p99_ms``: 99th percentile of the latency (None: unknown). ``observed_seconds``: time since the
    first request. ``is_stopped``: the endpoint is paused or being deleted, so it has no replicas.
    ``may_create``: false during the pause after failures. ``may_restore``: false during the pause
    after failures of replicas of ``active`` in a rollout.
    """

    desired: int
    active: str | None
    target: str
    replicas: Sequence[ReplicaState]
    rules: RolloutRules = RolloutRules()
    failures: int = 0
    requests: int = 0
    errors: int = 0
    p99_ms: float | None = None
    observed_seconds: float = 0.0
    is_promoted: bool = False
    is_stopped: bool = False
    may_create: bool = True
    may_restore: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The next steps. ``create``: number of new replicas by revision. ``end``: replicas without
    requests, to stop now. ``drain``: replicas that get no further requests. ``weights``: shares of
    new requests.
    """

    create: Mapping[str, int] = field(default_factory=dict)
    end: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome | None = None


def plan(now: Situation) -> Plan:
    """Return the next steps of an endpoint."""
    if now.is_stopped:
        return _remove([each for each in now.replicas if each.phase in LIVE_PHASES])
    if now.active == now.target:
        return _steady(now)
    if now.failures >= now.rules.max_failures or is_out_of_bounds(now):
        if now.active is None:
            return replace(_remove(_live(now, now.target)), outcome=Outcome.FAILED)
        return replace(_steady(replace(now, target=now.active)), outcome=Outcome.ROLLED_BACK)
    if now.active is None:
        is_complete = len(_ready(now, now.target)) >= now.desired
        return replace(_steady(now), outcome=Outcome.COMPLETED if is_complete else None)
    if now.rules.strategy is Strategy.ROLLING:
        return _roll(now)
    return _switch(now, now.active)


def _steady(now: Situation) -> Plan:
    """Keep ``desired`` replicas of the target, and none of other revisions.

    Ready replicas of other revisions, for example of a revision that was given up, remain until the
    target has enough ready replicas.
    """
    target = _live(now, now.target)
    others = [each for each in _live(now) if each.revision_id != now.target]
    removed = [*_spare(others, len(_ready(now)) - now.desired), *_surplus(target, now.desired)]
    return replace(
        _remove(removed),
        create=_creation(now, now.target, now.desired - len(target)),
        weights=_by_number(_without(_ready(now), removed), now.target),
    )


def _roll(now: Situation) -> Plan:
    """Replace replicas a few at a time.

    The plan never creates more than ``desired + max_surge`` live replicas. It never removes ready
    replicas below ``desired - max_unavailable``.
    """
    rules, new, ready = now.rules, _live(now, now.target), _ready(now)
    old = [each for each in _live(now) if each.revision_id != now.target]
    removed = _spare(old, len(ready) - max(0, now.desired - rules.max_unavailable))
    removed += _surplus(new, now.desired)
    # A removed replica is replaced only in the next step, when it no longer gets requests.
    places = now.desired + rules.max_surge - len(new) - len(old)
    is_complete = not old and len(_ready(now, now.target)) >= now.desired
    return replace(
        _remove(removed),
        create=_creation(now, now.target, min(now.desired - len(new), places)),
        weights=_by_number(_without(_ready(now), removed), now.target),
        outcome=Outcome.COMPLETED if is_complete else None,
    )


def _switch(now: Situation, active: str) -> Plan:
    """Start the new revision beside the former one, then switch all requests at once.

    Before its promotion, a canary gets its share of the requests and only the replicas for this
    share.
    """
    rules = now.rules
    is_canary = rules.strategy is Strategy.CANARY
    may_switch = now.is_promoted or (rules.is_automatic and _is_observed(now))
    wanted = now.desired if may_switch else canary_replicas(now.desired, rules)
    new, old, ready = _live(now, now.target), _live(now, active), _ready(now, now.target)
    if may_switch and len(ready) >= now.desired:
        others = [each for each in _live(now) if each.revision_id != now.target]
        return replace(
            _remove([*others, *_surplus(new, now.desired)]),
            weights={now.target: ALL_REQUESTS},
            outcome=Outcome.COMPLETED,
        )
    # Replicas of a rollout that was replaced serve until the former revision has enough of them.
    others = [each for each in _live(now) if each.revision_id not in (now.target, active)]
    former = [each for each in _ready(now) if each.revision_id != now.target]
    removed = _spare(others, len(former) - now.desired)
    surplus = _surplus(new, wanted)
    if len(_ready(now, active)) < now.desired:
        # The former revision lacks capacity: stop only surplus replicas that do not serve.
        surplus = [each for each in surplus if each.phase is not Phase.READY]
    weights = _by_number(_without(former, removed), active)
    if is_canary and ready:
        share, unit = rules.canary_percent, gcd(*weights.values())
        numbers = {revision: number // unit for revision, number in weights.items()}
        weights = {each: number * (ALL_REQUESTS - share) for each, number in numbers.items()}
        weights[now.target] = sum(numbers.values()) * share
    return replace(
        _remove([*removed, *surplus, *_surplus(old, now.desired)]),
        create={
            **_creation(now, now.target, wanted - len(new)),
            **(_creation(now, active, now.desired - len(old)) if now.may_restore else {}),
        },
        weights=weights,
    )


def canary_replicas(desired: int, rules: RolloutRules) -> int:
    """Return the number of replicas of a new revision before its promotion."""
    if rules.strategy is not Strategy.CANARY:
        return desired
    return max(1, -(-desired * rules.canary_percent // ALL_REQUESTS))


def is_out_of_bounds(now: Situation) -> bool:
    """Return whether the target must be given up; False if there is no former revision."""
    return now.active is not None and (_has_too_many_errors(now) or is_too_slow(now))


def _has_too_many_errors(now: Situation) -> bool:
    percent = now.rules.max_error_percent
    if percent is None:
        return False
    return now.errors * 100 > percent * max(now.requests, now.rules.min_requests)


def is_too_slow(now: Situation) -> bool:
    """Return whether the 99th percentile of the target's latency is above its limit."""
    limit, p99 = now.rules.max_p99_ms, now.p99_ms
    if limit is None or p99 is None or now.requests < now.rules.min_requests:
        return False
    return p99 > limit


def _is_observed(now: Situation) -> bool:
    """Return whether a canary has been observed for long enough to be promoted."""
    rules = now.rules
    if rules.strategy is not Strategy.CANARY:
        return True
    is_checked = rules.max_error_percent is not None or rules.max_p99_ms is not None
    if is_checked and now.requests < rules.min_requests:
        return False
    return now.observed_seconds >= rules.min_seconds


def _live(now: Situation, revision: str | None = None) -> list[ReplicaState]:
    return [
        each
        for each in now.replicas
        if each.phase in LIVE_PHASES and revision in (None, each.revision_id)
    ]


def _ready(now: Situation, revision: str | None = None) -> list[ReplicaState]:
    return [each for each in _live(now, revision) if each.phase is Phase.READY]


def _surplus(live: Sequence[ReplicaState], wanted: int) -> list[ReplicaState]:
    """Return the replicas beyond ``wanted``: first replicas that do not serve yet, then replicas on
    the emptiest agents (to free agents for large sessions), then the newest.

    ``live`` are in order of creation.
    """
    ordered = sorted(
        reversed(live), key=lambda each: (each.phase is Phase.READY, each.agent_kernels)
    )
    return ordered[: max(0, len(live) - wanted)]


def _spare(others: Sequence[ReplicaState], ready: int) -> list[ReplicaState]:
    """Return all replicas that do not serve, and up to ``ready`` replicas that serve."""
    starting = [each for each in others if each.phase is Phase.STARTING]
    serving = [each for each in others if each.phase is Phase.READY]
    return [*starting, *serving[: max(0, ready)]]


def _by_number(serving: Iterable[ReplicaState], otherwise: str) -> dict[str, int]:
    """Return weights of revisions with which every replica gets the same share of the requests.

    Without replicas, the revision ``otherwise`` gets all requests.
    """
    weights: dict[str, int] = {}
    for each in serving:
        weights[each.revision_id] = weights.get(each.revision_id, 0) + 1
    return weights if len(weights) > 1 else {next(iter(weights), otherwise): ALL_REQUESTS}


def _without(
    replicas: Sequence[ReplicaState], removed: Sequence[ReplicaState]
) -> list[ReplicaState]:
    return [each for each in replicas if each not in removed]


def _remove(replicas: Sequence[ReplicaState]) -> Plan:
    """End the replicas that have no requests, and drain the others."""
    return Plan(
        end=tuple(each.id for each in replicas if each.phase is Phase.STARTING),
        drain=tuple(each.id for each in replicas if each.phase is Phase.READY),
    )


def _creation(now: Situation, revision: str, count: int) -> dict[str, int]:
    return {revision: count} if count > 0 and now.may_create else {}
