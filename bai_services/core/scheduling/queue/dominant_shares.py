"""Dominant shares of users in a resource group, and fair-share factors of past usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ...cluster.devices import is_device_slot, thousandths
from ...resources import CPU, MEM
from ..caps import Scope, ScopeKind
from ..placement import AgentState
from .model import DailyUsage, FairShare

_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Maximum exponent of usage: a fair-share factor is at least 2 ** -10.
_MAX_EXPONENT = 10.0
_DEFAULT_WEIGHTS = {CPU: 1.0, MEM: 0.001}
_DEVICE_WEIGHT = 10.0
_FAIR_KINDS = (ScopeKind.DOMAIN, ScopeKind.PROJECT, ScopeKind.USER)

# Amounts of cpu (millicores), mem (bytes) and device families (thousandths of a device).
Amounts = Mapping[str, int]


def amounts_by_resource(slots: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of slots; slots of the same device family are added."""
    amounts: dict[str, int] = {}
    for slot, amount in slots.items():
        if is_device_slot(slot):
            family = slot.partition(".")[0]
            amounts[family] = amounts.get(family, 0) + thousandths(slot, amount)
        else:
            amounts[slot] = amount
    return amounts


def capacity_of(agents: Iterable[AgentState]) -> dict[str, int]:
    """Return the total capacity of alive agents and healthy devices, without zero entries."""
    total: dict[str, int] = {}
    for agent in agents:
        if not agent.is_alive:
            continue
        for slot in (CPU, MEM):
            total[slot] = total.get(slot, 0) + agent.capacity.get(slot, 0)
        for device in agent.devices:
            if device.is_healthy:
                total[device.family] = total.get(device.family, 0) + device.capacity
    return {name: amount for name, amount in total.items() if amount}


class DominantShares:
    """The dominant share of each user: the largest fraction of any resource that the user holds.

    Resources that the group does not have are ignored.
    """

    def __init__(self) -> None:
        self._held: dict[Scope | None, dict[str, int]] = {}
        self._share: dict[Scope | None, float] = {}
        self._capacity: Amounts = {}

    def set_capacity(self, capacity: Amounts) -> None:
        """Set the capacity of the group; shares are recomputed on the next access."""
        self._capacity = capacity
        self._share.clear()

    def of(self, user: Scope | None) -> float:
        """Return the dominant share of a user; 0 for a user without resources."""
        share = self._share.get(user)
        if share is None:
            share = self._share[user] = self._largest(0.0, self._held.get(user, {}))
        return share

    def of_with(self, user: Scope | None, amounts: Amounts) -> float:
        """Return the dominant share that a user would have with additional ``amounts``."""
        held = self._held.get(user, {})
        return self._largest(self.of(user), {n: held.get(n, 0) + a for n, a in amounts.items()})

    def fraction(self, amounts: Amounts) -> float:
        """Return the largest fraction of any resource in ``amounts``."""
        return self._largest(0.0, amounts)

    def _largest(self, share: float, amounts: Amounts) -> float:
        capacity = self._capacity
        for name, amount in amounts.items():
            whole = capacity.get(name)
            if whole is not None and amount > share * whole:
                share = amount / whole
        return share

    def add(self, user: Scope | None, amounts: Amounts, sign: int = 1) -> None:
        """Add to the usage of a user; subtract if ``sign`` is -1."""
        held = self._held.setdefault(user, {})
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) + sign * amount
        share = self._share.pop(user, None)
        if share is not None and sign > 0:
            self._share[user] = self._largest(share, {name: held[name] for name in amounts})

    def copy(self) -> DominantShares:
        """Return an independent copy for look-ahead."""
        other = DominantShares()
        other._held = {user: dict(held) for user, held in self._held.items()}
        other._share = dict(self._share)
        other._capacity = self._capacity
        return other


def today(now: datetime) -> int:
    """Return the day (UTC) of a time, counted as in ``DailyUsage``."""
    return (now - _EPOCH).days


def fair_factor(
    scope: Scope, buckets: Sequence[DailyUsage], options: FairShare, capacity: Amounts, day: int
) -> float:
    """Return the fair-share factor 2 ** (-usage / weight) of a scope: 1 without usage, near 0 for
    heavy usage or a weight of 0.

    The usage of a resource is a fraction of the group's capacity over the lookback period. The
    weight of past usage is halved after each half-life. ``usage`` is the average over the
    resources, weighted by ``resource_weights``.
    """
    used: dict[str, float] = {}
    for bucket in buckets:
        age = day - bucket.day
        if age < 0 or age >= options.lookback_days:
            continue
        decay = 2.0 ** (-age / options.half_life_days)
        for name, amount in amounts_by_resource(bucket.slots).items():
            used[name] = used.get(name, 0.0) + decay * amount
    total = weights = 0.0
    for name, amount in sorted(capacity.items()):
        weight = _slot_weight(name, options)
        total += weight * used.get(name, 0.0) / (amount * options.lookback_days * _DAY_SECONDS)
        weights += weight
    normalized = total / weights if weights else 0.0
    weight = options.weights.get(scope, options.default_weight)
    exponent = normalized / weight if weight > 0 else _MAX_EXPONENT
    return float(2.0 ** -min(exponent, _MAX_EXPONENT))


def _slot_weight(name: str, options: FairShare) -> float:
    """Return the weight of a resource; for a device family, the first weight of its slots."""
    for key, weight in options.resource_weights.items():
        if key == name or key.partition(".")[0] == name:
            return weight
    return _DEFAULT_WEIGHTS.get(name, _DEVICE_WEIGHT)


def fair_scopes(scopes: Iterable[Scope]) -> tuple[Scope | None, ...]:
    """Return the (domain, project, user) of a session, the order in which fair-share compares."""
    by_kind = {scope.kind: scope for scope in scopes}
    return tuple(by_kind.get(kind) for kind in _FAIR_KINDS)
