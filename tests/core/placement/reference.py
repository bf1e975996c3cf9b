"""Reference implementation of the placement policies in plain, slow Python.

This is the test oracle for the compiled code. It supports one kernel per request, one device family
and model per agent, and no device locality. See `docs/how-to/change-placement.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bai_services.core.cluster.devices import thousandths
from bai_services.core.scheduling.placement import AgentState, Placement, Policy
from bai_services.core.scheduling.placement.pricing.mix import Mix, RequestKind
from bai_services.core.scheduling.placement.pricing.prices import remainder_values, share_prices

from .factories import GIB


def acceptable(
    policy: Policy, agents: list[AgentState], kind: RequestKind, last: int
) -> list[int | None]:
    """Return the indices of the agents that a policy may choose; [None] if no agent fits.

    ``last`` is the index of the previously chosen agent, or -1.
    """
    able = [n for n, agent in enumerate(agents) if fits(agent, kind)]
    if not able:
        return [None]
    if policy == Policy.RANDOM:
        return [*able]
    if policy == Policy.ROUND_ROBIN:
        return [min(able, key=lambda n: (n <= last, n))]
    if policy == Policy.PRICED:
        priced = PricedReference(MIX, agents)
        scores: dict[int, Any] = {n: priced.score(agents[n], kind) for n in able}
    else:
        rules: dict[Policy, Callable[[AgentState, RequestKind], Any]] = {
            Policy.FGD: fgd_score,
            Policy.BEST_FIT: best_fit,
            Policy.PACK: pack,
            Policy.SPREAD: spread,
        }
        scores = {n: rules[policy](agents[n], kind) for n in able}
    best = max(scores.values())
    # If several agents are equal, the first one is chosen.
    return [next(n for n in able if scores[n] == best)]


def with_parts(agents: list[AgentState], parts: list[Placement]) -> list[AgentState]:
    """Return copies of the agents on which the withheld parts count as used."""
    withheld = {part.agent_id: part for part in parts}
    seen = []
    for agent in agents:
        part = withheld[agent.id]
        used = {s: agent.used.get(s, 0) + part.slots.get(s, 0) for s in agent.capacity}
        amounts = {d.device_id: thousandths(d.slot, d.amount) for d in part.devices}
        devices = tuple(replace(d, used=d.used + amounts.get(d.id, 0)) for d in agent.devices)
        seen.append(replace(agent, used=used, devices=devices))
    return seen


def free_shares(on: AgentState) -> list[int]:
    """Return the free thousandths of each device."""
    return [d.capacity - d.used for d in on.devices]


def fits(on: AgentState, kind: RequestKind) -> bool:
    free = free_shares(on)
    if kind.cpu > on.free("cpu") or kind.mem > on.free("mem"):
        return False
    if kind.devices == 0:
        return True
    if kind.models and on.devices[0].model not in kind.models:
        return False
    return sum(thousandths >= kind.share for thousandths in free) >= kind.devices


def remaining_after(on: AgentState, kind: RequestKind) -> tuple[int, int, int]:
    """Return the remaining thousandths of devices, thousandths of cores, and bytes of memory."""
    devices = sum(free_shares(on)) - kind.devices * kind.share
    return devices, on.free("cpu") - kind.cpu, on.free("mem") - kind.mem


def best_fit(on: AgentState, kind: RequestKind) -> int:
    """Return a score of at most 100: up to 50 for few free cores, up to 50 for few free devices.

    128 free cores, or 8 free devices, reduce the score by 50.
    """
    devices, cpu, _ = remaining_after(on, kind)
    return int(100 * (1 - 0.5 * cpu / 128_000 - 0.5 * devices / 8_000))


def spread(on: AgentState, kind: RequestKind) -> tuple[int, ...]:
    """Return a score that prefers the most remaining devices, then cores, then memory.

    For a request without devices, agents without free devices come first.
    """
    devices, cpu, mem = remaining_after(on, kind)
    has_unrequested = devices > 0 and kind.devices == 0
    return -int(has_unrequested), devices, cpu, mem // (GIB // 4)


def pack(on: AgentState, kind: RequestKind) -> tuple[int, ...]:
    """Return a score that prefers the fewest remaining devices, then cores, then memory.

    For a request without devices, agents without free devices come first.
    """
    unrequested, *left = spread(on, kind)
    return unrequested, *(-n for n in left)


MIX: Mix = {
    RequestKind(4000, 8 * GIB, "cuda", 1, 1000): 5,
    RequestKind(2000, 4 * GIB, "cuda", 1, 1000, ("T4",)): 3,
    RequestKind(1000, 4 * GIB, "cuda", 1, 810): 2,
    RequestKind(1000, 2 * GIB, "cuda", 1, 470): 4,
    RequestKind(3000, 2 * GIB, "cuda", 1, 250): 3,
    RequestKind(8000, 16 * GIB, "cuda", 2, 1000): 1,
    RequestKind(2000, 4 * GIB): 2,
}


def capacity_value(mix: Mix, model: str, k: int, cpu: int, mem: int) -> float:
    """Return the capacity value of ``k`` free devices, computed by recursion.

    The recursion counts cores in bins of 0.5 and memory in bins of 4 GiB.
    """
    rows = [
        (-(-kind.cpu // 500), -(-kind.mem // (4 * GIB)), weight)
        for kind, weight in mix.items()
        if kind.devices == 1 and kind.share >= 800 and (not kind.models or model in kind.models)
    ]
    total = sum(weight for *_, weight in rows)
    memo: dict[tuple[int, int, int], float] = {}

    def value_of(k: int, c: int, m: int) -> float:
        if k == 0:
            return 0.0
        if (k, c, m) not in memo:
            gains = [
                1 + value_of(k - 1, c - ci, m - mi) if ci <= c and mi <= m else 0.0
                for ci, mi, _ in rows
            ]
            value = max(gains)
            for _ in range(400):
                value = sum(
                    weight / total * max(gain, 0.93 * value)
                    for gain, (_, _, weight) in zip(gains, rows, strict=True)
                )
            memo[k, c, m] = value
        return memo[k, c, m]

    return value_of(k, min(cpu // 500, 192), min(mem // (4 * GIB), 96))


class PricedReference:
    """The score of the priced policy for an agent with devices of one model."""

    def __init__(self, mix: Mix, agents: list[AgentState]) -> None:
        self.mix = mix
        shares = {k.share: 0.0 for k in mix if 0 < k.share < 1000}
        for kind, weight in mix.items():
            if 0 < kind.share < 1000:
                shares[kind.share] += weight
        self.value = remainder_values(share_prices(shares)[0])
        total = sum(k.demand * weight for k, weight in mix.items())
        self.parts = {
            n: sum(k.demand * weight for k, weight in mix.items() if k.devices == n) / total
            for n in (1, 2)
        }
        supply: dict[str, int] = {}
        for device in (d for a in agents for d in a.devices):
            supply[device.model] = supply.get(device.model, 0) + 1
        fleet = sum(supply.values())
        ratio = dict.fromkeys(supply, 0.0)
        for kind, weight in mix.items():
            models = [m for m in supply if not kind.models or m in kind.models]
            for model in models if kind.devices else ():
                ratio[model] += (
                    kind.demand * weight * fleet / total / sum(supply[m] for m in models)
                )
        self.model_price = {m: 0.05 * (r - min(ratio.values())) for m, r in ratio.items()}

    def bonus(self, whole: int) -> float:
        return sum(p * k * (whole // k) for k, p in self.parts.items()) - whole

    def phi(self, model: str, free: list[int], cpu: int, mem: int) -> float:
        g = sum(float(self.value[f]) for f in free)
        k, f = int(g), g - int(g)
        if k >= len(free):
            k, f = len(free), 0.0
        low = capacity_value(self.mix, model, k, cpu, mem)
        return (
            low if f == 0 else (1 - f) * low + f * capacity_value(self.mix, model, k + 1, cpu, mem)
        )

    def score(self, on: AgentState, kind: RequestKind) -> int | None:
        """Return the score of the best device choice, as a number of steps of 0.04.

        Return None if the request does not fit.
        """
        free = [d.capacity - d.used for d in on.devices]
        model = on.devices[0].model
        cpu, mem = (on.capacity[s] - on.used.get(s, 0) for s in ("cpu", "mem"))
        if kind.cpu > cpu or kind.mem > mem or (kind.models and model not in kind.models):
            return None
        ways: list[list[int]] = []
        if kind.devices == 0:
            ways = [free]
        elif kind.share < 1000:
            for j, thousandths in enumerate(free):
                if thousandths >= kind.share:
                    ways.append([f - kind.share * (i == j) for i, f in enumerate(free)])
        elif free.count(1000) >= kind.devices:
            left = kind.devices
            after = list(free)
            for j, thousandths in enumerate(free):
                if thousandths == 1000 and left:
                    after[j], left = 0, left - 1
            ways = [after]
        if not ways:
            return None
        best = -math.inf
        for after in ways:
            score = self.phi(model, after, cpu - kind.cpu, mem - kind.mem)
            score -= self.phi(model, free, cpu, mem)
            lost_value = sum(float(self.value[f]) for f in free)
            lost_value -= sum(float(self.value[f]) for f in after)
            score -= self.model_price[model] * lost_value
            score -= 0.05 * (self.bonus(free.count(1000)) - self.bonus(after.count(1000)))
            best = max(best, score)
        return math.floor(best / 0.04 + 0.5)


def lost_to_fragmentation(
    on: AgentState, free: list[int], cpu: int, typical: list[tuple[RequestKind, float]]
) -> float:
    total, lost = sum(free), 0.0
    for kind, part in typical:
        fitting = [f for f in free if f >= kind.share]
        is_barred = kind.models and on.devices[0].model not in kind.models
        if kind.devices == 0 or kind.cpu > cpu or len(fitting) < kind.devices or is_barred:
            lost += part * total
        else:
            lost += part * (total - sum(fitting))
    return lost


def fgd_score(on: AgentState, kind: RequestKind) -> int:
    """Return the published FGD score of an agent, for the best choice of its devices."""
    free = [d.capacity - d.used for d in on.devices]
    cpu = on.capacity["cpu"] - on.used.get("cpu", 0)
    # Typical requests are the most frequent kinds, which make up at least 95 % of all requests.
    order = sorted(MIX, key=lambda k: -MIX[k])
    kept: list[RequestKind] = []
    while sum(MIX[k] for k in kept) < 0.95 * sum(MIX.values()):
        kept.append(order[len(kept)])
    typical = [(k, MIX[k] / sum(MIX[k] for k in kept)) for k in kept]
    scores = []
    for after in placements_on_devices(free, kind):
        change = lost_to_fragmentation(on, free, cpu, typical) - lost_to_fragmentation(
            on, after, cpu - kind.cpu, typical
        )
        scores.append(int(100 / (1 + math.exp(-change / 1000))))
    return max(scores)


def placements_on_devices(free: list[int], kind: RequestKind) -> list[list[int]]:
    """Return the free thousandths of all devices after each possible placement.

    Whole devices have only one placement: on the first unused devices.
    """
    if kind.devices == 0:
        return [free]
    if kind.share < 1000:
        able = [j for j, thousandths in enumerate(free) if thousandths >= kind.share]
        return [[f - kind.share * (i == j) for i, f in enumerate(free)] for j in able]
    chosen = [j for j, thousandths in enumerate(free) if thousandths == 1000][: kind.devices]
    return [[0 if j in chosen else thousandths for j, thousandths in enumerate(free)]]
