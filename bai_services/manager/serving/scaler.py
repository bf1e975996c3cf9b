"""Set the numbers of replicas of endpoints by their scaling rules.

Any manager stores the loads that gateways report. Only the holder of the lease reads them, at each
step, and keeps their history in memory; a new holder begins a new history.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.autoscaling import (
    ScalingDecision,
    ScalingRule,
    desired_replicas,
    rule_from_json,
)
from bai_services.core.serving.load_history import LoadHistory
from bai_services.core.serving.records import LOAD_INTERVAL_SECONDS, LOADS_KEPT_FOR
from bai_services.core.serving.rollout import Phase
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.usage_history import Resolution
from bai_services.core.wall_clock import has_elapsed
from bai_services.db.serving.replicas import EndpointState
from bai_services.db.serving.rows import EndpointRow
from bai_services.db.serving.scaling import NewLoad, NewScaling, ScalingStore

from .loads import EndpointLoads, load_or_reason

# After a refused replica, a rule does not increase the number of replicas for this time.
REFUSED_FOR = timedelta(minutes=1)
_SAMPLES = Resolution(LOAD_INTERVAL_SECONDS, LOADS_KEPT_FOR)

log = logging.getLogger(__name__)


class EndpointScaler:
    def __init__(self, store: ScalingStore, loads: EndpointLoads) -> None:
        self._store = store
        self.loads = loads
        self._histories: dict[str, tuple[ScalingRule, LoadHistory]] = {}
        self._sampled_at: datetime | None = None

    async def close(self) -> None:
        await self.loads.readings.close()

    async def scale(
        self,
        states: Sequence[EndpointState],
        gateways: set[str],
        variant_of: Callable[[EndpointRow], Awaitable[str]],
        now: datetime,
    ) -> list[EndpointState]:
        """Evaluate the rules, and return the endpoints with their numbers of replicas.

        ``gateways`` are the reporting gateways. ``variant_of`` returns the runtime variant of an
        endpoint.
        """
        scaled = [each for each in states if is_scaled(each.row)]
        histories, self._histories = self._histories, {}
        if not scaled:
            return list(states)
        rules: list[tuple[EndpointState, ScalingRule, str]] = []
        for each in scaled:
            try:
                rules.append((each, _rule(each.row), await variant_of(each.row)))
            except (InvalidRequest, KeyError, TypeError, ValueError):
                # For example, a time zone that no longer exists on this machine.
                log.exception("the rule of endpoint %s is not valid", each.row.name)
        loads = await self.loads.read(rules, gateways, now)
        changes, samples = [], []
        for state, rule, _ in rules:
            row = state.row
            load, unknown = load_or_reason(loads[row.id])
            history = _history_of(histories.get(row.id), rule)
            self._histories[row.id] = rule, history
            try:
                decision = _decide(state, rule, history, load, unknown, now)
            except Exception:
                # A failing endpoint must not delay the others.
                log.exception("endpoint %s could not be scaled", row.name)
                continue
            samples.append(NewLoad(row.id, load, decision.replicas, row.ready_replicas))
            if _is_new(row, decision):
                changes.append(_change(row, decision))
        stored = await self._store.set(changes, now) if changes else set()
        await self._sample(samples, now)
        new = {each.endpoint_id: each for each in changes if each.endpoint_id in stored}
        return [_with(state, new.get(state.row.id)) for state in states]

    async def _sample(self, samples: Sequence[NewLoad], now: datetime) -> None:
        """Store the loads once per interval."""
        at = _SAMPLES.start_of(now)
        if samples and at != self._sampled_at:
            self._sampled_at = at
            await self._store.add_loads(samples, at, at - LOADS_KEPT_FOR)

    async def clean_up(self) -> None:
        await self._store.clean_up()


def is_scaled(row: EndpointRow) -> bool:
    """Return whether a rule sets the number of replicas now."""
    is_stopped = row.is_paused or row.is_deleting or row.is_given_up
    return row.scaling is not None and not is_stopped


def _history_of(known: tuple[ScalingRule, LoadHistory] | None, rule: ScalingRule) -> LoadHistory:
    """Return the history of an endpoint; a new history if the measure of its rule has changed."""
    if known is None:
        return LoadHistory()
    former, history = known
    is_same = _measured(former) == _measured(rule)
    return history if is_same else LoadHistory()


def _measured(rule: ScalingRule) -> tuple[str, str, str]:
    return rule.measure, rule.metric, rule.query


def _decide(
    state: EndpointState,
    rule: ScalingRule,
    history: LoadHistory,
    load: float | None,
    unknown: CodedText,
    now: datetime,
) -> ScalingDecision:
    row, at = state.row, now.timestamp()
    if load is not None:
        history.add(rule, at, load, row.replicas)
    if _is_first_replica_starting(state):
        # The time of the start does not count as idle, because it may exceed the idle period.
        history.begin_idle_period(at - rule.stable_seconds)
    decision = desired_replicas(
        rule, history.samples, row.ready_replicas, at, row.replicas, unknown
    )
    is_refused = (
        row.problem is not None
        and row.problem["code"] == TextTemplate.REPLICA_REFUSED.code
        and row.failed_at is not None
        and not has_elapsed(row.failed_at, REFUSED_FOR, now)
    )
    limit = max(row.ready_replicas + row.starting_replicas, rule.min_replicas, 1)
    if is_refused and decision.replicas > limit:
        text = TextTemplate.SCALING_REFUSED.text(decision.reason, count=limit)
        return ScalingDecision(limit, text)
    return decision


def _rule(row: EndpointRow) -> ScalingRule:
    assert row.scaling is not None
    rule = rule_from_json(row.scaling)
    if row.active_revision_id == row.target_revision_id:
        return rule
    # During a rollout, require at least one replica. Otherwise the rollout could not show that its
    # revision works.
    schedule = tuple(
        replace(each, min_replicas=max(1, each.min_replicas)) for each in rule.schedule
    )
    return replace(rule, min_replicas=max(1, rule.min_replicas), schedule=schedule)


def _is_first_replica_starting(state: EndpointState) -> bool:
    phases = {each.phase for each in state.replicas}
    return Phase.READY not in phases and any(
        each.phase is Phase.STARTING and each.status is Status.RUNNING for each in state.replicas
    )


def _is_new(row: EndpointRow, decision: ScalingDecision) -> bool:
    """Return whether the number of replicas, or a code of its reason, has changed."""
    if decision.replicas != row.replicas or row.scaling_reason is None:
        return True
    return _codes(decision.reason.as_json()) != _codes(row.scaling_reason)


def _codes(text: Mapping[str, Any]) -> list[str]:
    return [text["code"], *(part["code"] for part in text["parts"])]


def _change(row: EndpointRow, decision: ScalingDecision) -> NewScaling:
    return NewScaling(
        id=str(uuid.uuid4()),
        endpoint_id=row.id,
        version=row.version,
        former=row.replicas,
        replicas=decision.replicas,
        reason=decision.reason.as_json(),
    )


def _with(state: EndpointState, change: NewScaling | None) -> EndpointState:
    if change is None:
        return state
    row = replace(state.row, replicas=change.replicas, scaling_reason=change.reason)
    return replace(state, row=row)
