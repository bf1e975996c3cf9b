"""What users and others have of a resource group: dominant shares now, decayed use over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ...cluster.devices import is_device_slot, thousandths
from ...resources import CPU, MEM
from ..caps import Scope, ScopeKind
from ..placement import AgentState
from .model import Bucket, FairShare

_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A factor is never beyond 2 to the power of these.
_MOST_EXPONENT = 10.0
_DEFAULT_WEIGHTS = {CPU: 1.0, MEM: 0.001}
_DEVICE_WEIGHT = 10.0
_FAIR_KINDS = (ScopeKind.DOMAIN, ScopeKind.PROJECT, ScopeKind.USER)

# Amounts by cpu, mem and family of devices (in thousandths), whatever slot they were asked by.
Amounts = Mapping[str, int]


def amounts_of(slots: Mapping[str, int]) -> dict[str, int]:
    """Return slots with those of one family of devices taken together."""
    found: dict[str, int] = {}
    for slot, amount in slots.items():
        if is_device_slot(slot):
            family = slot.partition(".")[0]
            found[family] = found.get(family, 0) + thousandths(slot, amount)
        else:
            found[slot] = amount
    return found


def capacity_of(agents: Iterable[AgentState]) -> dict[str, int]:
    """Return what the living agents of a group have in all; what has nothing is left out."""
    found: dict[str, int] = {}
    for agent in agents:
        if not agent.is_alive:
            continue
        for slot in (CPU, MEM):
            found[slot] = found.get(slot, 0) + agent.capacity.get(slot, 0)
        for device in agent.devices:
            if device.is_healthy:
                found[device.family] = found.get(device.family, 0) + device.capacity
    return {name: amount for name, amount in found.items() if amount}


class Shares:
    """The dominant share of every user in one resource group: the largest part of any one kind.

    Kinds that the group has nothing of are ignored.
    """

    def __init__(self) -> None:
        self._held: dict[Scope | None, dict[str, int]] = {}
        self._share: dict[Scope | None, float] = {}
        self._capacity: Amounts = {}

    def set_capacity(self, capacity: Amounts) -> None:
        """Set what the group has; every share is worked out anew when next asked for."""
        self._capacity = capacity
        self._share.clear()

    def of(self, user: Scope | None) -> float:
        """Return the share of a user; 0 for one who holds nothing."""
        share = self._share.get(user)
        if share is None:
            share = self._share[user] = self._largest(0.0, self._held.get(user, {}))
        return share

    def _largest(self, share: float, amounts: Amounts) -> float:
        capacity = self._capacity
        for name, amount in amounts.items():
            whole = capacity.get(name)
            if whole is not None and amount > share * whole:
                share = amount / whole
        return share

    def add(self, user: Scope | None, amounts: Amounts, sign: int = 1) -> None:
        """Count what a user holds more, or with ``sign`` -1 less."""
        held = self._held.setdefault(user, {})
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) + sign * amount
        share = self._share.pop(user, None)
        if share is not None and sign > 0:
            self._share[user] = self._largest(share, {name: held[name] for name in amounts})

    def copy(self) -> Shares:
        """Return an independent copy to look ahead with."""
        other = Shares()
        other._held = {user: dict(held) for user, held in self._held.items()}
        other._share = dict(self._share)
        other._capacity = self._capacity
        return other


def today(now: datetime) -> int:
    """Return the day (UTC) of a time, counted as in ``Bucket``."""
    return (now - _EPOCH).days


def fair_factor(
    scope: Scope, buckets: Sequence[Bucket], options: FairShare, capacity: Amounts, day: int
) -> float:
    """Return 2^(-use / weight) of a scope: 1 for one that has used nothing, near 0 for heavy use.

    The use of each kind counts as a part of what the group could have given in
    the time looked back on, halved with every half life that has passed, and
    averaged over the kinds by their weights.
    """
    used: dict[str, float] = {}
    for bucket in buckets:
        age = day - bucket.day
        if age < 0 or age >= options.lookback_days:
            continue
        decay = 2.0 ** (-age / options.half_life_days)
        for name, amount in amounts_of(bucket.slots).items():
            used[name] = used.get(name, 0.0) + decay * amount
    total = weights = 0.0
    for name, amount in sorted(capacity.items()):
        weight = _slot_weight(name, options)
        total += weight * used.get(name, 0.0) / (amount * options.lookback_days * _DAY_SECONDS)
        weights += weight
    normalized = total / weights if weights else 0.0
    weight = options.weights.get(scope, options.default_weight)
    exponent = normalized / weight if weight > 0 else _MOST_EXPONENT
    return float(2.0 ** -min(exponent, _MOST_EXPONENT))


def _slot_weight(name: str, options: FairShare) -> float:
    """Return how much a kind counts; a family also by the name of any of its slots."""
    for key, weight in options.resource_weights.items():
        if key == name or key.partition(".")[0] == name:
            return weight
    return _DEFAULT_WEIGHTS.get(name, _DEVICE_WEIGHT)


def fair_scopes(scopes: Iterable[Scope]) -> tuple[Scope | None, ...]:
    """Return domain, project and user of a session: the levels that fair share compares."""
    found = {scope.kind: scope for scope in scopes}
    return tuple(found.get(kind) for kind in _FAIR_KINDS)
