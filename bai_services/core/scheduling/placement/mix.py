"""Typical requests of a group: learned from its own requests, starting from a default mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...cluster.devices import SHARES, pool_of, split_shares
from ...resources import CPU, MEM, SHARE_STEP, SHARE_UNIT, family_of
from .model import AgentState, Mode, Request

# Number of own requests from which a group no longer uses the default mix; below it, the default
# mix makes up the difference.
_OWN_ENOUGH = 500
_START_COUNTS = 50


@dataclass(frozen=True, slots=True, order=True)
class RequestKind:
    """A typical request: ``devices`` devices of which ``share`` thousandths each are taken.

    A share is always of one device; no ``models`` means any.
    """

    cpu: int
    mem: int
    family: str = ""
    devices: int = 0
    share: int = 0
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> float:
        """Number of devices that it takes."""
        return self.devices * self.share / SHARE_UNIT


# Frequency of each kind; only the proportions matter.
Mix = Mapping[RequestKind, float]


def learn_mix(recent: Iterable[Request], agents: Sequence[AgentState]) -> Mix:
    """Return the mix of a group's recent requests, blended with the default mix of its agents."""
    counts: Counter[RequestKind] = Counter()
    own = 0
    for request in recent:
        own += 1
        for kind, times in kinds_of(request):
            counts[kind] += times
    mix = {kind: float(times) for kind, times in counts.items()}
    start = starting_mix(agents)
    total = sum(start.values())
    weight = _START_COUNTS * max(0.0, 1 - own / _OWN_ENOUGH)
    if weight and total:
        for kind, part in start.items():
            mix[kind] = mix.get(kind, 0.0) + weight * part / total
    return dict(sorted(mix.items()))


def kinds_of(request: Request) -> list[tuple[RequestKind, int]]:
    """Return the kinds that a request counts as, each with its multiplicity."""
    cpu, mem = request.slots.get(CPU, 0), request.slots.get(MEM, 0)
    needs = [(slot, n) for slot, n in request.slots.items() if family_of(slot)]
    times = request.kernels
    if not needs:
        return [(RequestKind(cpu, mem), times)]
    found: list[tuple[RequestKind, int]] = []
    for slot, amount in needs:
        kind = RequestKind(cpu, mem, pool_of(slot), amount, SHARE_UNIT, request.device_models)
        if not slot.endswith(f".{SHARES}"):
            if request.mode == Mode.SINGLE_NODE:
                kind = replace(kind, cpu=cpu * times, mem=mem * times, devices=amount * times)
                found.append((kind, 1))
            else:
                found.append((kind, times))
            continue
        for part in split_shares(amount):
            count = len(split_shares(amount))
            share = replace(kind, cpu=cpu // count, mem=mem // count, devices=1, share=part)
            found.append((share, times))
    return found


def stays_of(
    recent: Sequence[Request], seconds: Sequence[float | None]
) -> dict[RequestKind, float]:
    """Return the mean run time of each kind of request for which ended sessions are known."""
    ran: dict[RequestKind, list[float]] = {}
    for request, time in zip(recent, seconds, strict=False):
        for kind, _ in kinds_of(request) if time else ():
            ran.setdefault(kind, []).append(time or 0.0)
    return {kind: sum(times) / len(times) for kind, times in sorted(ran.items())}


def starting_mix(agents: Sequence[AgentState]) -> Mix:
    """Return a mix in the proportions of the agents: whole devices, halves, quarters, some
    multiples.

    Each device comes with three quarters of its agent's cpu and memory per device, which leaves
    room for cpu-only requests.
    """
    mix: dict[RequestKind, float] = {}
    for family in sorted({d.pool for a in agents for d in a.devices}):
        mine = [a for a in agents if any(d.pool == family for d in a.devices)]
        most = max(sum(d.pool == family for d in a.devices) for a in mine)
        devices = sum(d.pool == family for a in mine for d in a.devices)
        cpu = sum(a.capacity.get(CPU, 0) for a in mine) * 3 // (4 * devices)
        mem = sum(a.capacity.get(MEM, 0) for a in mine) * 3 // (4 * devices)
        for share, weight in ((SHARE_UNIT, 4.0), (SHARE_UNIT // 2, 2.0), (SHARE_UNIT // 4, 2.0)):
            kind = RequestKind(
                cpu * share // SHARE_UNIT, mem * share // SHARE_UNIT, family, 1, share
            )
            mix[kind] = weight
        for count in (2, 4, 8):
            if count <= most:
                mix[RequestKind(cpu * count, mem * count, family, count, SHARE_UNIT)] = 1.0 / count
    cpu = sum(a.capacity.get(CPU, 0) for a in agents) // max(1, len(agents))
    mem = sum(a.capacity.get(MEM, 0) for a in agents) // max(1, len(agents))
    mix[RequestKind(max(cpu // 16, 1), mem // 16)] = 1.0
    return mix


def shares_of(mix: Mix, family: str) -> dict[int, float]:
    """Return the frequency of each share below a whole device."""
    found: dict[int, float] = {}
    for kind, weight in mix.items():
        if kind.family == family and kind.devices == 1 and kind.share < SHARE_UNIT:
            size = -(-kind.share // SHARE_STEP) * SHARE_STEP
            found[size] = found.get(size, 0.0) + weight
    return dict(sorted(found.items()))
