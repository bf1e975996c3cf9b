"""Rules that decide which running sessions a pending session may preempt."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ..caps import Scope, ScopeKind
from .options import PreemptionOptions, VictimScope


class Rule(StrEnum):
    """The rule by which a session is preempted."""

    PRIORITY = "priority"  # its priority is lower
    JOB_PRIORITY = "job-priority"  # same user and priority; its job priority is lower
    FAIR_SHARE = "fair-share"  # same priority; its user has a larger share of the resource group


class Rank(NamedTuple):
    """The attributes of a session that the rules of preemption compare."""

    priority: int
    job_priority: int
    scopes: tuple[Scope, ...]


_KIND_OF_SCOPE = {
    VictimScope.USER: ScopeKind.USER,
    VictimScope.PROJECT: ScopeKind.PROJECT,
    VictimScope.DOMAIN: ScopeKind.DOMAIN,
}


def rule_of(options: PreemptionOptions, waiting: Rank, victim: Rank) -> Rule | None:
    """Return the rule by which a pending session may preempt a running session, or None.

    For ``FAIR_SHARE``, the caller must also compare the shares of the users. The minimum run time
    and ``is_preemptible`` of the running session are not checked here.
    """
    if not options.enabled or victim.priority > options.preemptible_priority:
        return None
    kind = _KIND_OF_SCOPE.get(options.victim_scope)
    if kind is not None and _scope(waiting, kind) != _scope(victim, kind):
        return None
    if victim.priority < waiting.priority:
        return Rule.PRIORITY
    if victim.priority > waiting.priority:
        return None
    if _scope(waiting, ScopeKind.USER) == _scope(victim, ScopeKind.USER):
        return Rule.JOB_PRIORITY if victim.job_priority < waiting.job_priority else None
    return Rule.FAIR_SHARE if options.over_fair_share else None


def _scope(rank: Rank, kind: ScopeKind) -> Scope | None:
    return next((scope for scope in rank.scopes if scope.kind == kind), None)
