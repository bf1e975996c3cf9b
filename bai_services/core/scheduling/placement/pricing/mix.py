"""The mix of typical requests of a group: learned from its requests, blended with a default mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....cluster.devices import SHARES, pool_of, split_shares
from ....resources import CPU, MEM, SHARE_STEP, SHARE_UNIT, family_of
from ...placement_options import Mode
from ..model import AgentState, Request

# Number of requests below which the learned mix is blended with the default mix.
_MIN_OWN_REQUESTS = 500
# Weight of the default mix for a group without requests, as a number of requests.
_DEFAULT_MIX_WEIGHT = 50


@dataclass(frozen=True, slots=True, order=True)
class RequestKind:
    """A typical request for ``devices`` devices, ``share`` thousandths of each.

    ``cpu`` is in millicores, ``mem`` in bytes. A share from 1 to 999 implies ``devices == 1``.
    Empty ``models``: any model.
    """

    cpu: int
    mem: int
    family: str = ""
    devices: int = 0
    share: int = 0
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> float:
        """Number of devices that a request of this kind uses, as a fraction for shares."""
        return self.devices * self.share / SHARE_UNIT


# Frequency of each kind; only the proportions matter.
Mix = Mapping[RequestKind, float]


def learn_mix(recent: Iterable[Request], agents: Sequence[AgentState]) -> Mix:
    """Return the mix of requests of a group, learned from ``recent`` requests.

    With fewer than ``_MIN_OWN_REQUESTS`` requests, the result is blended with the default mix of
    the agents.
    """
    counts: Counter[RequestKind] = Counter()
    own = 0
    for request in recent:
        own += 1
        for kind, times in request_kinds(request):
            counts[kind] += times
    mix = {kind: float(times) for kind, times in counts.items()}
    default = default_mix(agents)
    total = sum(default.values())
    weight = _DEFAULT_MIX_WEIGHT * max(0.0, 1 - own / _MIN_OWN_REQUESTS)
    if weight and total:
        for kind, part in default.items():
            mix[kind] = mix.get(kind, 0.0) + weight * part / total
    return dict(sorted(mix.items()))


def request_kinds(request: Request) -> list[tuple[RequestKind, int]]:
    """Return the kinds of a request, each with its number of occurrences in the request.

    Every device slot is a separate kind. A share of more than one device counts as several parts,
    each with an equal part of the cpu and memory.
    """
    cpu, mem = request.slots.get(CPU, 0), request.slots.get(MEM, 0)
    needs = [(slot, n) for slot, n in request.slots.items() if family_of(slot)]
    times = request.kernels
    if not needs:
        return [(RequestKind(cpu, mem), times)]
    kinds: list[tuple[RequestKind, int]] = []
    for slot, amount in needs:
        kind = RequestKind(cpu, mem, pool_of(slot), amount, SHARE_UNIT, request.device_models)
        if not slot.endswith(f".{SHARES}"):
            if request.mode == Mode.SINGLE_NODE:
                kind = replace(kind, cpu=cpu * times, mem=mem * times, devices=amount * times)
                kinds.append((kind, 1))
            else:
                kinds.append((kind, times))
            continue
        for part in split_shares(amount):
            count = len(split_shares(amount))
            share = replace(kind, cpu=cpu // count, mem=mem // count, devices=1, share=part)
            kinds.append((share, times))
    return kinds


def mean_runtime_seconds(
    recent: Sequence[Request], seconds: Sequence[float | None]
) -> dict[RequestKind, float]:
    """Return the mean run time of each kind of request, from ended sessions.

    ``seconds`` contains the run time of each session of ``recent``, or None if the session has not
    ended. ``seconds`` may be shorter than ``recent``: the missing times count as None.
    """
    runtimes: dict[RequestKind, list[float]] = {}
    for request, runtime in zip(recent, seconds, strict=False):
        if runtime:
            for kind, _ in request_kinds(request):
                runtimes.setdefault(kind, []).append(runtime)
    return {kind: sum(times) / len(times) for kind, times in sorted(runtimes.items())}


def default_mix(agents: Sequence[AgentState]) -> Mix:
    """Return the mix for a group that has not received requests.

    It contains requests for a whole device, half a device, a quarter of a device, several devices,
    and no device. The cpu and memory of a request are proportional to its devices: for a whole
    device, three quarters of the agents' mean cpu and memory per device. The remaining quarter is
    left for requests without devices.
    """
    mix: dict[RequestKind, float] = {}
    for family in sorted({d.pool for a in agents for d in a.devices}):
        owners = [a for a in agents if any(d.pool == family for d in a.devices)]
        max_devices = max(sum(d.pool == family for d in a.devices) for a in owners)
        devices = sum(d.pool == family for a in owners for d in a.devices)
        cpu = sum(a.capacity.get(CPU, 0) for a in owners) * 3 // (4 * devices)
        mem = sum(a.capacity.get(MEM, 0) for a in owners) * 3 // (4 * devices)
        for share, weight in ((SHARE_UNIT, 4.0), (SHARE_UNIT // 2, 2.0), (SHARE_UNIT // 4, 2.0)):
            kind = RequestKind(
                cpu * share // SHARE_UNIT, mem * share // SHARE_UNIT, family, 1, share
            )
            mix[kind] = weight
        for count in (2, 4, 8):
            if count <= max_devices:
                mix[RequestKind(cpu * count, mem * count, family, count, SHARE_UNIT)] = 1.0 / count
    cpu = sum(a.capacity.get(CPU, 0) for a in agents) // max(1, len(agents))
    mem = sum(a.capacity.get(MEM, 0) for a in agents) // max(1, len(agents))
    mix[RequestKind(max(cpu // 16, 1), mem // 16)] = 1.0
    return mix


def shares_of(mix: Mix, family: str) -> dict[int, float]:
    """Return the frequency of each share below a whole device.

    Shares are in thousandths and rounded up to multiples of ``SHARE_STEP``.
    """
    frequencies: dict[int, float] = {}
    for kind, weight in mix.items():
        if kind.family == family and kind.devices == 1 and kind.share < SHARE_UNIT:
            size = -(-kind.share // SHARE_STEP) * SHARE_STEP
            frequencies[size] = frequencies.get(size, 0.0) + weight
    return dict(sorted(frequencies.items()))
