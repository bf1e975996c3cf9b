"""Caps (limits) on the resources and sessions of a scope, and violations of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ..coded_text import CodedText, TextTemplate
from ..errors import QuotaExceeded
from ..record_fields import fields_of
from ..resources import UNLIMITED, ResourceSlots, format_amount

# Default ``max_pending_sessions`` of a user policy. It equals ``MAX_BULK``, the maximum number of
# sessions in a bulk creation request.
MAX_PENDING_SESSIONS = 1000
# The slot that counts sessions.
SESSIONS = "sessions"
# The slot in violations of ``max_containers_per_session``. It has no usage counter.
CONTAINERS = "containers"

_NOTHING: Mapping[str, int] = {}


class ScopeKind(StrEnum):
    DOMAIN = "domain"
    PROJECT = "project"
    USER = "user"
    KEYPAIR = "keypair"
    RESOURCE_GROUP = "resource-group"


class Scope(NamedTuple):
    """A domain, project, user, keypair or resource group to which sessions are charged.

    Scopes sort by kind and id. Counters are always locked in this order.
    """

    kind: str
    id: str


_SCOPES = {
    ScopeKind.DOMAIN: TextTemplate.SCOPE_DOMAIN,
    ScopeKind.PROJECT: TextTemplate.SCOPE_PROJECT,
    ScopeKind.USER: TextTemplate.SCOPE_USER,
    ScopeKind.KEYPAIR: TextTemplate.SCOPE_KEYPAIR,
    ScopeKind.RESOURCE_GROUP: TextTemplate.SCOPE_RESOURCE_GROUP,
}


@dataclass(frozen=True, slots=True)
class ScopeCaps:
    """Limits of one scope.

    A slot that is missing from ``slots`` is forbidden if ``is_closed`` (a keypair policy with the
    default LIMITED), and unlimited otherwise. A slot with the value ``UNLIMITED`` is always
    unlimited. A maximum of None means no limit. Slots missing from ``max_pending_slots`` are
    unlimited.
    """

    scope: Scope
    name: str  # for messages: the name of a domain, project or user, or an access key
    slots: Mapping[str, int] = field(default_factory=dict)
    is_closed: bool = False
    max_sessions: int | None = None
    max_pending_sessions: int | None = None
    max_pending_slots: Mapping[str, int] = field(default_factory=dict)
    max_containers_per_session: int | None = None
    # Only for a keypair: the names of its user and of its policy.
    owner: str = ""
    policy: str = ""

    @property
    def coded(self) -> CodedText:
        """The scope in messages; a keypair is named by its user and its policy."""
        if self.owner:
            return TextTemplate.SCOPE_KEYPAIR_OF_USER.text(name=self.owner, policy=self.policy)
        return _SCOPES[ScopeKind(self.scope.kind)].text(name=self.name)

    @property
    def limits_pending(self) -> bool:
        """Whether there is a cap on pending sessions or on their slots."""
        return self.max_pending_sessions is not None or bool(self.max_pending_slots)

    def limit(self, slot: str) -> int | None:
        """Return the cap on a slot, or on the number of sessions; None means unlimited."""
        if slot == SESSIONS:
            return self.max_sessions
        cap = self.slots.get(slot, 0 if self.is_closed else None)
        return None if cap == UNLIMITED else cap


@dataclass(frozen=True, slots=True)
class Violation:
    """A cap that a request would exceed. Amounts are strings, in the form that users write.

    ``is_permanent``: the request exceeds the cap even if nothing else uses it.
    """

    scope: str
    scope_id: str
    slot: str
    asked: str
    limit: str
    used: str
    left: str
    message: str
    coded: CodedText  # the message; ``parts`` contains the scope
    scope_text: str  # the scope in messages
    is_permanent: bool

    @property
    def coded_scope(self) -> CodedText:
        return self.coded.parts[0]


Usage = Mapping[Scope, Mapping[str, int]]


def needs(slots: Mapping[str, int]) -> dict[str, int]:
    """Return the usage by slot that one session with ``slots`` adds to each of its scopes."""
    return {**slots, SESSIONS: 1}


def violations(
    caps: Iterable[ScopeCaps], slots: Mapping[str, int], usage: Usage, *, ever: bool = False
) -> list[Violation]:
    """Return one violation for each cap that ``usage`` plus ``slots`` would exceed.

    With ``ever``, return only violations of caps that ``slots`` exceeds without any other usage.
    """
    exceeded = []
    for scope_caps in caps:
        used = usage.get(scope_caps.scope, _NOTHING)
        for slot, amount in needs(slots).items():
            limit = scope_caps.limit(slot)
            have = used.get(slot, 0)
            if limit is not None and amount + (0 if ever else have) > limit:
                exceeded.append(_violation(scope_caps, slot, (amount, limit, have)))
    return exceeded


def pending_violations(
    caps: Iterable[ScopeCaps],
    slots: Mapping[str, int],
    pending: Usage,
    *,
    usage_before: Usage | None = None,
    requested: Mapping[str, int] | None = None,
) -> list[Violation]:
    """Return one violation for each pending cap that one more pending session would exceed.

    ``pending`` includes the preceding sessions of the same bulk request. The messages show
    ``usage_before``, the usage before the bulk request, and ``requested``, the total of the bulk
    request.
    """
    usage_before = pending if usage_before is None else usage_before
    requested = needs(slots) if requested is None else requested
    exceeded = []
    for scope_caps in caps:
        used = pending.get(scope_caps.scope, _NOTHING)
        before = usage_before.get(scope_caps.scope, _NOTHING)
        limits = {
            slot: limit
            for slot, limit in scope_caps.max_pending_slots.items()
            if limit != UNLIMITED and slots.get(slot, 0)
        }
        if scope_caps.max_pending_sessions is not None:
            limits = {SESSIONS: scope_caps.max_pending_sessions, **limits}
        for slot, limit in limits.items():
            if used.get(slot, 0) + needs(slots)[slot] > limit:
                amounts = (requested[slot], limit, before.get(slot, 0))
                exceeded.append(_violation(scope_caps, slot, amounts, is_pending=True))
    return exceeded


def container_violations(caps: Iterable[ScopeCaps], kernels: int) -> list[Violation]:
    """Return one violation for each cap on the containers of a session that ``kernels`` exceeds."""
    return [
        _violation(scope_caps, CONTAINERS, (kernels, limit, 0))
        for scope_caps in caps
        if (limit := scope_caps.max_containers_per_session) is not None and kernels > limit
    ]


def left(caps: Iterable[ScopeCaps], slot: str, usage: Usage) -> int | None:
    """Return the smallest remaining amount of a slot in any scope; None if no scope limits it."""
    remaining = [
        max(0, limit - usage.get(scope_caps.scope, _NOTHING).get(slot, 0))
        for scope_caps in caps
        if (limit := scope_caps.limit(slot)) is not None
    ]
    return min(remaining, default=None)


def pending_left(caps: Iterable[ScopeCaps], slot: str, pending: Usage) -> int | None:
    """Return the smallest remaining amount of a slot for pending sessions; None: no limit."""
    remaining = [
        max(0, limit - pending.get(scope_caps.scope, _NOTHING).get(slot, 0))
        for scope_caps in caps
        if (limit := scope_caps.max_pending_slots.get(slot, UNLIMITED)) != UNLIMITED
    ]
    return min(remaining, default=None)


def highest(caps: Iterable[ScopeCaps], slot: str) -> int | None:
    """Return the largest amount of a slot that the caps allow for a session; None if unlimited."""
    return min((n for c in caps if (n := c.limit(slot)) is not None), default=None)


def raise_if_violated(exceeded: Sequence[Violation]) -> None:
    """Raise ``QuotaExceeded`` with all violations, if there are any."""
    if exceeded:
        raise QuotaExceeded(
            "; ".join(v.message for v in exceeded),
            violations=[violation_facts(v) for v in exceeded],
            is_permanent=any(v.is_permanent for v in exceeded),
        )


def violation_facts(violation: Violation) -> dict[str, Any]:
    """Return a violation as a JSON object, for the details of an error or a reason."""
    return {**shown_fields(violation), "coded": violation.coded.as_json()}


def shown_fields(violation: Violation) -> dict[str, Any]:
    """Return the fields of a violation that clients see."""
    facts = fields_of(violation)
    del facts["is_permanent"]
    return facts


def amount_text(slot: str, amount: int) -> str:
    """Return an amount in the form that users write; sessions and containers as plain numbers."""
    return str(amount) if slot in (SESSIONS, CONTAINERS) else format_amount(slot, amount)


def violation(caps: ScopeCaps, slot: str, asked: int, limit: int, used: int) -> Violation:
    """Return the violation for a session that requests ``asked`` units of a slot."""
    return _violation(caps, slot, (asked, limit, used))


def _violation(
    caps: ScopeCaps, slot: str, amounts: tuple[int, int, int], *, is_pending: bool = False
) -> Violation:
    """Return the violation for ``amounts``: requested amount, limit and usage.

    ``is_pending``: the limit applies to pending sessions.
    """
    asked, limit, used = (amount_text(slot, n) for n in amounts)
    left = amount_text(slot, max(0, amounts[1] - amounts[2]))
    if slot == SESSIONS:
        template = (
            TextTemplate.PENDING_QUOTA_OF_SESSIONS_EXCEEDED
            if is_pending
            else TextTemplate.QUOTA_OF_SESSIONS_EXCEEDED
        )
        text = template.text(caps.coded, limit=amounts[1], used=used, left=left, asked=asked)
    elif slot == CONTAINERS:
        text = TextTemplate.QUOTA_OF_CONTAINERS_EXCEEDED.text(caps.coded, asked=asked, limit=limit)
    else:
        template = (
            TextTemplate.PENDING_QUOTA_EXCEEDED if is_pending else TextTemplate.QUOTA_EXCEEDED
        )
        text = template.text(caps.coded, slot=slot, asked=asked, limit=limit, left=left)
    return Violation(
        caps.scope.kind,
        caps.scope.id,
        slot,
        asked,
        limit,
        used,
        left,
        str(text),
        text,
        str(caps.coded),
        amounts[0] > amounts[1],
    )


def add(usage: dict[Scope, dict[str, int]], scopes: Iterable[Scope], slots: ResourceSlots) -> None:
    """Add one session with ``slots`` to the usage of every scope, in place."""
    for scope in scopes:
        counted = usage.setdefault(scope, {})
        for slot, amount in needs(slots).items():
            counted[slot] = counted.get(slot, 0) + amount
