"""Caps on the scopes that a session counts in: requested, used and remaining resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ..errors import QuotaExceeded
from ..resources import UNLIMITED, ResourceSlots, format_amount

# Default limit on one user's pending sessions (the policy may differ): one full bulk creation
# request.
MAX_PENDING_SESSIONS = 1000
# The slot that counts sessions, beside the real slots.
SESSIONS = "sessions"
# Not a counted slot: the name under which violations report ``max_containers_per_session``.
CONTAINERS = "containers"

_NOTHING: Mapping[str, int] = {}


class ScopeKind(StrEnum):
    DOMAIN = "domain"
    PROJECT = "project"
    USER = "user"
    KEYPAIR = "keypair"
    RESOURCE_GROUP = "resource-group"


class Scope(NamedTuple):
    """One scope; tuples sort by kind and id, which is the order in which counters are locked."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class ScopeCaps:
    """Limits of one scope.

    A slot missing from ``slots`` is unlimited, or 0 where ``is_closed`` (a keypair policy with
    LIMITED). A slot set to ``UNLIMITED`` is always unlimited. A count of None means no limit. The
    pending caps apply only to the slots that they list.
    """

    scope: Scope
    name: str  # display name of the scope: the name of a domain, project or user, or an access key
    slots: Mapping[str, int] = field(default_factory=dict)
    is_closed: bool = False
    max_sessions: int | None = None
    max_pending_sessions: int | None = None
    max_pending_slots: Mapping[str, int] = field(default_factory=dict)
    max_containers_per_session: int | None = None

    def limit(self, slot: str) -> int | None:
        """Return the cap on a slot, or on the number of sessions; None is unlimited."""
        if slot == SESSIONS:
            return self.max_sessions
        cap = self.slots.get(slot, 0 if self.is_closed else None)
        return None if cap == UNLIMITED else cap


@dataclass(frozen=True, slots=True)
class Violation:
    """A cap that a request would exceed; quantities are strings, as users write them."""

    scope: str
    scope_id: str
    slot: str
    asked: str
    limit: str
    used: str
    left: str
    message: str


Usage = Mapping[Scope, Mapping[str, int]]


def needs(slots: Mapping[str, int]) -> dict[str, int]:
    """Return what one session adds to every scope it counts in."""
    return {**slots, SESSIONS: 1}


def violations(
    caps: Iterable[ScopeCaps], slots: Mapping[str, int], usage: Usage, *, ever: bool = False
) -> list[Violation]:
    """Return every cap that ``slots`` would exceed on top of ``usage``, in order.

    With ``ever``: only the caps that it would exceed even if nothing was in use.
    """
    found = []
    for scope_caps in caps:
        used = usage.get(scope_caps.scope, _NOTHING)
        for slot, amount in needs(slots).items():
            limit = scope_caps.limit(slot)
            have = used.get(slot, 0)
            if limit is not None and amount + (0 if ever else have) > limit:
                found.append(_violation(scope_caps, slot, (amount, limit, have)))
    return found


def pending_violations(
    caps: Iterable[ScopeCaps],
    slots: Mapping[str, int],
    pending: Usage,
    *,
    waiting: Usage | None = None,
    asked: Mapping[str, int] | None = None,
) -> list[Violation]:
    """Return every pending cap that one more pending session would exceed.

    ``pending`` includes the preceding sessions of the same request. ``waiting`` is what is pending
    already and ``asked`` what the whole request adds; the messages name both.
    """
    waiting = pending if waiting is None else waiting
    asked = needs(slots) if asked is None else asked
    found = []
    for scope_caps in caps:
        used = pending.get(scope_caps.scope, _NOTHING)
        known = waiting.get(scope_caps.scope, _NOTHING)
        limits = {
            slot: limit
            for slot, limit in scope_caps.max_pending_slots.items()
            if limit != UNLIMITED and slots.get(slot, 0)
        }
        if scope_caps.max_pending_sessions is not None:
            limits = {SESSIONS: scope_caps.max_pending_sessions, **limits}
        for slot, limit in limits.items():
            if used.get(slot, 0) + needs(slots)[slot] > limit:
                amounts = (asked[slot], limit, known.get(slot, 0))
                found.append(_violation(scope_caps, slot, amounts, "wait"))
    return found


def container_violations(caps: Iterable[ScopeCaps], kernels: int) -> list[Violation]:
    """Return every cap on the containers of one session that ``kernels`` would exceed."""
    return [
        _violation(scope_caps, CONTAINERS, (kernels, limit, 0))
        for scope_caps in caps
        if (limit := scope_caps.max_containers_per_session) is not None and kernels > limit
    ]


def left(caps: Iterable[ScopeCaps], slot: str, usage: Usage) -> int | None:
    """Return the remaining quantity of a slot in the tightest scope; None where no scope limits
    it.
    """
    rooms = [
        max(0, limit - usage.get(scope_caps.scope, _NOTHING).get(slot, 0))
        for scope_caps in caps
        if (limit := scope_caps.limit(slot)) is not None
    ]
    return min(rooms, default=None)


def highest(caps: Iterable[ScopeCaps], slot: str) -> int | None:
    """Return the largest quantity of a slot that the caps ever allow one session; None is
    unlimited.
    """
    return min((n for c in caps if (n := c.limit(slot)) is not None), default=None)


def refuse(found: Sequence[Violation]) -> None:
    """Raise ``QuotaExceeded`` with all violations, if there are any."""
    if found:
        raise QuotaExceeded(
            "; ".join(v.message for v in found), violations=[violation_facts(v) for v in found]
        )


def violation_facts(violation: Violation) -> dict[str, str]:
    """Return the violation as the JSON object of an error's details or a reason."""
    return {name: getattr(violation, name) for name in violation.__dataclass_fields__}


def amount_text(slot: str, amount: int) -> str:
    return str(amount) if slot in (SESSIONS, CONTAINERS) else format_amount(slot, amount)


def violation(caps: ScopeCaps, slot: str, asked: int, limit: int, used: int) -> Violation:
    """Return the violation of a session that requests ``asked`` of a slot with a limit."""
    return _violation(caps, slot, (asked, limit, used))


def _violation(
    caps: ScopeCaps, slot: str, amounts: tuple[int, int, int], verb: str = "run"
) -> Violation:
    """Return the violation for the requested quantity, the limit and the usage."""
    asked, limit, used = amounts
    spare = max(0, limit - used)
    texts = tuple(amount_text(slot, n) for n in (asked, limit, used, spare))
    asked_text, limit_text, used_text, left_text = texts
    if slot == SESSIONS:
        message = f"{caps.scope.kind} {caps.name} may have {limit_text} sessions {verb} at once; "
        if verb == "wait":
            message += (
                f"{used_text} wait, {left_text} are left, {asked_text} were asked for; cancel "
                "some, wait until some have started, or ask for a higher limit"
            )
        else:
            message += f"{used_text} do, {left_text} are left"
    elif slot == CONTAINERS:
        message = (
            f"{asked_text} containers asked, but one session of {caps.scope.kind} {caps.name} may "
            f"have at most {limit_text}"
        )
    else:
        waiting = " waiting" if verb == "wait" else ""
        message = (
            f"{slot}={asked_text} asked, but {caps.scope.kind} {caps.name} may have at most "
            f"{slot}={limit_text}{waiting}, of which {left_text} is left"
        )
    return Violation(
        caps.scope.kind,
        caps.scope.id,
        slot,
        asked_text,
        limit_text,
        used_text,
        left_text,
        message,
    )


def add(usage: dict[Scope, dict[str, int]], scopes: Iterable[Scope], slots: ResourceSlots) -> None:
    """Count one session with ``slots`` in every scope, in place."""
    for scope in scopes:
        counted = usage.setdefault(scope, {})
        for slot, amount in needs(slots).items():
            counted[slot] = counted.get(slot, 0) + amount
