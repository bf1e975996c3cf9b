"""Explain one pending session: position, checks, estimated start and suggestions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...cluster.devices import is_device_slot
from ...coded_text import CodedText, TextTemplate
from ...resources import ResourceSlots, format_amount, readable_amount, slot_type
from ..caps import SESSIONS, Violation, violation_facts
from ..maintenance import NO_AGENTS
from ..other_groups import in_group, would_start
from ..placement import Request
from ..queue.explain import (
    ACCOUNT,
    BUDGET,
    DEPENDENCIES,
    GROUP,
    MAINTENANCE,
    NOT_BEFORE,
    ORDER,
    POLICY,
    RESERVATION,
    RESOURCES,
    blocked,
    capacity_reason,
    delaying,
    inactive,
    maintenance_reasons,
    preemptible,
    preempts,
    reason,
    reserved,
)
from ..queue.group_queue import GroupQueue
from ..queue.model import (
    Certainty,
    Estimate,
    Explanation,
    PendingSession,
    Reason,
    Suggestion,
    SuggestionKind,
)
from ..queue.run import Queue
from ..queue.shape import session_slots
from .estimate import Budget, estimate_starts
from .position import positions

_NOTHING = Estimate(None, Certainty.UNKNOWN)
# Maximum number of session ids in the facts of a quota suggestion.
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Choices:
    """Alternatives that the owner of a pending session could request."""

    groups: Sequence[str] = ()  # resource groups that the session may run in
    presets: Mapping[str, ResourceSlots] = field(default_factory=dict)


@dataclass(slots=True)
class _GroupView:
    """The positions of the sessions of one group at one revision of the queue."""

    revision: int
    positions: dict[str, int]


class Explainer:
    """Explains pending sessions; positions and estimates are computed once per queue revision.

    Not thread-safe, like ``Queue``.
    """

    def __init__(self, queue: Queue, budget: Budget | None = None) -> None:
        """Explain the sessions of ``queue``; ``budget`` limits the simulation for estimates."""
        self._queue = queue
        self._views: dict[str, _GroupView] = {}
        self._budget = budget
        self._starts: dict[str, Estimate] = {}
        self._starts_revision = -1

    @property
    def queue(self) -> Queue:
        """The explained queue."""
        return self._queue

    def explain(self, session_id: str, choices: Choices | None = None) -> Explanation | None:
        """Return why a session is pending; None if the session is not pending."""
        pending = self._queue.pending(session_id)
        if pending is None:
            return None
        group_queue = self._queue.group_queue(pending.request.resource_group)
        view = self._view(group_queue)
        position = view.positions[session_id]
        checks = _checks(self._queue, group_queue, pending, position)
        estimate = self._estimates().get(session_id, _NOTHING)
        suggestions = _SuggestionFinder(self._queue, pending, checks).find(choices or Choices())
        return Explanation(session_id, position, position - 1, checks, estimate, suggestions)

    def positions(self, group: str) -> Mapping[str, int]:
        """Return the position of every pending session of a group."""
        return self._view(self._queue.group_queue(group)).positions

    def estimates(self, group: str) -> Mapping[str, Estimate]:
        """Return the estimated start of every pending session of a group."""
        ids = self._queue.group_queue(group).pending_ids()
        starts = self._estimates()
        return {session_id: starts.get(session_id, _NOTHING) for session_id in ids}

    def _estimates(self) -> Mapping[str, Estimate]:
        """Return the estimated starts in all groups: groups with common caps affect each other."""
        if self._starts_revision != self._queue.revision:
            self._starts = estimate_starts(self._queue, self._budget)
            self._starts_revision = self._queue.revision
        return self._starts

    def _view(self, group_queue: GroupQueue) -> _GroupView:
        known = self._views.get(group_queue.state.name)
        if known is None or known.revision != self._queue.revision:
            known = self._views[group_queue.state.name] = self._new_view(group_queue)
        return known

    def _new_view(self, group_queue: GroupQueue) -> _GroupView:
        queue = self._queue
        everyone = queue.pending_in(group_queue.state.name)
        return _GroupView(queue.revision, positions(group_queue, everyone, queue.pause_if_busy))


def explain_one(
    queue: Queue, session_id: str, choices: Choices | None = None
) -> Explanation | None:
    """Return why one session of a queue is pending; None if the session is not pending."""
    return Explainer(queue).explain(session_id, choices)


# ---- Checks ----


def _checks(
    queue: Queue, group_queue: GroupQueue, pending: PendingSession, position: int
) -> tuple[Reason, ...]:
    """Return every check in the order of evaluation, passed or failed."""
    checks = [
        *_account(pending),
        _group(group_queue),
        _dependencies(pending),
        _not_before(queue, pending),
    ]
    checks += maintenance_reasons(pending)
    rows = queue.quotas.rows(pending.scopes)
    need = queue.quotas.need(session_slots(pending))
    for passed, violation in queue.quotas.checks(rows, need):
        text = _kept(violation) if passed else violation.coded
        checks.append({**violation_facts(violation), **reason(POLICY, text, passed)})
    checks.append(_resources(group_queue, pending))
    checks.append(_turn(group_queue, pending, position))
    reservation = next((r for r in group_queue.reservations if r.session_id == pending.id), None)
    if pending.plan is not None:
        checks.append(preempts(pending.plan))
    elif reservation is not None:
        checks.append(reserved(reservation))
    elif group_queue.reservations and checks[-2]["passed"] and checks[-1]["passed"]:
        checks.append(delaying(group_queue))
    if group_queue.state.preemption.enabled:
        checks.append(preemptible(group_queue, pending))
    return tuple(checks)


def _account(pending: PendingSession) -> list[Reason]:
    """Return the check of the account and, if the budget is spent, the check of the budget."""
    failed = [] if pending.blocked_reason is None else [blocked(pending.blocked_reason)]
    if any(check["check"] == ACCOUNT for check in failed):
        return failed
    # The budget is checked last, so the account is active.
    return [reason(ACCOUNT, TextTemplate.ACCOUNTS_ACTIVE.text(), passed=True), *failed]


def _group(group_queue: GroupQueue) -> Reason:
    name = group_queue.state.name
    if not group_queue.state.is_active:
        return inactive(name)
    return reason(GROUP, TextTemplate.GROUP_ACTIVE.text(group=name), passed=True)


def _dependencies(pending: PendingSession) -> Reason:
    if pending.unmet_dependencies is not None:
        return reason(DEPENDENCIES, pending.unmet_dependencies)
    return reason(DEPENDENCIES, TextTemplate.DEPENDENCIES_MET.text(), passed=True)


def _not_before(queue: Queue, pending: PendingSession) -> Reason:
    if pending.not_before is None:
        return reason(NOT_BEFORE, TextTemplate.ANY_START_TIME.text(), passed=True)
    at = pending.not_before.isoformat()
    passed = pending.not_before <= queue.now
    template = TextTemplate.START_TIME_PASSED if passed else TextTemplate.START_TIME_AHEAD
    return reason(NOT_BEFORE, template.text(starts_at=at), passed, not_before=at)


def _kept(cap: Violation) -> CodedText:
    """Return the text for a cap that the session does not exceed."""
    amounts = {"used": cap.used, "limit": cap.limit, "asked": cap.asked}
    if cap.slot == SESSIONS:
        return TextTemplate.QUOTA_OF_SESSIONS_KEPT.text(cap.coded_scope, **amounts)
    return TextTemplate.QUOTA_KEPT.text(cap.coded_scope, slot=cap.slot, **amounts)


def _resources(group_queue: GroupQueue, pending: PendingSession) -> Reason:
    why = capacity_reason(group_queue, group_queue.placer.prepare(_placed_request(pending)))
    if why is not None:
        return why
    return reason(
        RESOURCES,
        TextTemplate.CAPACITY.text(group=group_queue.state.name, slots=str(pending.request.slots)),
        passed=True,
    )


def _placed_request(pending: PendingSession) -> Request:
    """Return the request for the capacity check.

    If maintenance withholds every agent, that is a separate check.
    """
    if pending.request.designated_agents == NO_AGENTS:
        return pending.without_maintenance().request
    return pending.request


def _turn(group_queue: GroupQueue, pending: PendingSession, position: int) -> Reason:
    facts: dict[str, Any] = {
        "position": position,
        "priority": pending.priority,
        "order": str(group_queue.state.order),
    }
    stopper = group_queue.stopped_by
    if stopper and stopper != pending.id and pending.id in group_queue.shape_of:
        return reason(
            ORDER,
            TextTemplate.POSITION_BEHIND.text(position=position, group=group_queue.state.name),
            behind=stopper,
            **facts,
        )
    return reason(
        ORDER,
        TextTemplate.POSITION.text(position=position, group=group_queue.state.name),
        passed=True,
        **facts,
    )


# ---- Suggestions ----


class _SuggestionFinder:
    """Searches for changes of the request or of quotas that would let a session start."""

    def __init__(self, queue: Queue, pending: PendingSession, checks: Sequence[Reason]) -> None:
        self._queue = queue
        self._pending = pending
        self._failed = [check for check in checks if not check["passed"]]

    def find(self, choices: Choices) -> tuple[Suggestion, ...]:
        """Return suggestions; empty if the account, the budget, a dependency or the start time
        prevents a start.
        """
        kinds = {check["check"] for check in self._failed}
        if kinds & {ACCOUNT, BUDGET, DEPENDENCIES, NOT_BEFORE}:
            return ()
        suggestions: list[Suggestion] = []
        if kinds & {GROUP, MAINTENANCE, RESOURCES, ORDER, RESERVATION}:
            suggestions += self._suggest_groups(choices.groups)
        if kinds & {POLICY, RESOURCES}:
            suggestions += self._suggest_less()
            suggestions += self._suggest_presets(choices.presets)
        suggestions += self._suggest_quotas()
        return tuple(suggestions)

    def _suggest_groups(self, groups: Sequence[str]) -> list[Suggestion]:
        own = self._pending.request.resource_group
        known = set(self._queue.groups())
        suggestions = []
        for group in sorted(known.intersection(groups) - {own}):
            if would_start(self._queue, in_group(self._pending, group)):
                text = TextTemplate.TRY_GROUP.text(group=group)
                suggestions.append(
                    Suggestion(SuggestionKind.RESOURCE_GROUP, text, {"resource_group": group})
                )
        return suggestions

    def _would_start_with(self, slots: ResourceSlots) -> bool:
        request = replace(self._pending.request, slots=slots)
        return would_start(self._queue, replace(self._pending, request=request))

    def _suggest_less(self) -> list[Suggestion]:
        """Suggest smaller amounts of slots with which the session could start now."""
        asked = self._pending.request.slots
        least = dict(asked)
        for slot, amount in self._remaining_amounts().items():
            step = slot_type(slot).step
            fitting = readable_amount(slot, amount // step * step)
            if fitting < max(slot_type(slot).minimum, step):
                return []
            least[slot] = min(least[slot], fitting)
        smaller = ResourceSlots(least)
        if smaller == asked or not self._would_start_with(smaller):
            return []
        changed = {s: format_amount(s, n) for s, n in smaller.items() if n != asked[s]}
        slots = " ".join(f"{slot}={amount}" for slot, amount in changed.items())
        text = TextTemplate.TRY_LESS.text(slots=slots)
        return [Suggestion(SuggestionKind.SMALLER, text, {"slots": changed})]

    def _remaining_amounts(self) -> dict[str, int]:
        """Return how much of each slot is still available per kernel.

        The result contains only slots of which no agent has enough, and requested slots with a cap.
        """
        request = self._pending.request
        remaining: dict[str, int] = {}
        queue, group_queue = self._queue, self._queue.group_queue(request.resource_group)
        refusal = group_queue.placer.refusal(group_queue.placer.prepare(request))
        if any(check["check"] == RESOURCES for check in self._failed):
            for shortage in refusal.shortages:
                together = request.kernels if shortage.asked != request.slots[shortage.slot] else 1
                remaining[shortage.slot] = shortage.available // together
        rows = queue.quotas.rows(self._pending.scopes)
        need = queue.quotas.need(session_slots(self._pending))
        for slot, left in queue.quotas.left(rows, need).items():
            if slot in request.slots:
                remaining[slot] = min(remaining.get(slot, left), left // request.kernels)
        return remaining

    def _suggest_presets(self, presets: Mapping[str, ResourceSlots]) -> list[Suggestion]:
        asked = self._pending.request.slots
        families = {slot.partition(".")[0] for slot in asked if is_device_slot(slot)}
        suggestions = []
        for name, slots in sorted(presets.items()):
            has = {slot.partition(".")[0] for slot in slots if is_device_slot(slot)}
            if slots != asked and has == families and self._would_start_with(slots):
                text = TextTemplate.TRY_PRESET.text(preset=name, slots=str(slots))
                facts = {"preset": name, "slots": slots.format()}
                suggestions.append(Suggestion(SuggestionKind.PRESET, text, facts))
        return suggestions

    def _suggest_quotas(self) -> list[Suggestion]:
        """Suggest raising the exceeded caps, once per scope, with the scope's running sessions."""
        suggestions = []
        seen = set()
        rows = self._queue.quotas.rows(self._pending.scopes)
        need = self._queue.quotas.need(session_slots(self._pending))
        for violation in self._queue.quotas.violations(rows, need):
            scope, scope_id, slot = violation.scope, violation.scope_id, violation.slot
            if (scope, scope_id) in seen:
                continue
            seen.add((scope, scope_id))
            running = self._queue.running_in_scope(scope, scope_id)
            using = self._queue.running_in_scope(scope, scope_id, "" if slot == SESSIONS else slot)
            text = TextTemplate.RAISE_QUOTA.text(violation.coded_scope, count=len(running))
            facts = {
                "scope": scope,
                "scope_id": scope_id,
                "sessions": len(running),
                "first_ids": using[:_MAX_NAMED],
            }
            suggestions.append(Suggestion(SuggestionKind.QUOTA, text, facts))
        return suggestions
