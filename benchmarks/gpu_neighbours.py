"""Tenants of a GPU side by side, and what is left of them when one is killed or has a fault."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .gpu_tenants import Environ, Tenant, ask, median_rate, together

# Rows of a matrix so small that one product leaves most of a GPU idle.
SMALL = 256
RECOVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Kinds:
    """The words of a tenant of each kind, and what it does in a second alone."""

    words: Mapping[str, Sequence[object]]
    alone: Mapping[str, float]

    @classmethod
    def measure(cls, environ: Environ, seconds: float, size: int, runs: int) -> Kinds:
        words: dict[str, Sequence[object]] = {
            "large": ["compute", seconds, size],
            "small": ["compute", seconds, min(SMALL, size)],
            "copy": ["copy", seconds],
        }
        return cls(words, {kind: median_rate(w, environ, runs) for kind, w in words.items()})

    def side_by_side(self, kinds: Sequence[str], environ: Environ) -> dict[str, float]:
        """Return the sum of each tenant's part of its own best, and how equal the parts are.

        One after the other they would make 1; Jain's index of the parts is 1 where all are equal.
        """
        rates = together([(self.words[kind], environ) for kind in kinds])
        parts = [rate / self.alone[kind] for rate, kind in zip(rates, kinds, strict=True)]
        fairness = sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))
        return {"of_one_alone": round(sum(parts), 3), "fairness": round(fairness, 3)}

    def pairs(self, environ: Environ) -> dict[str, dict[str, float]]:
        """Return what two tenants do beside each other: large work, small work, work and copies."""
        pairs = (("large", "large"), ("small", "small"), ("large", "copy"))
        return {f"{a}+{b}": self.side_by_side([a, b], environ) for a, b in pairs}

    def crowd(self, count: int, environ: Environ) -> dict[str, dict[str, float]]:
        return {kind: self.side_by_side([kind] * count, environ) for kind in ("large", "small")}


def killed_neighbour(words: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Kill a tenant at work; return whether its neighbour goes on and when a new one computes."""
    with Tenant(words, environ) as killed, Tenant(words, environ) as neighbour:
        for tenant in (killed, neighbour):
            tenant.answer()
        for tenant in (killed, neighbour):
            tenant.go()
        killed.process.kill()
        seconds = seconds_until_one_works(words, environ)
        return {"new_tenant_seconds": seconds, "neighbour_goes_on": _goes_on(neighbour)}


def fault_of_a_neighbour(words: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Let a tenant's kernel fault; return its error, its neighbour's fate, when a new one works."""
    with Tenant(words, environ) as neighbour:
        neighbour.answer()
        neighbour.go()
        try:
            code = ask(["fault"], environ)["code"]
        except RuntimeError as error:
            return {"why_not": str(error)}
        seconds = seconds_until_one_works(words, environ)
        found = {"error_code": code, "new_tenant_seconds": seconds}
        return {**found, "neighbour_goes_on": _goes_on(neighbour)}


def seconds_until_one_works(words: Sequence[object], environ: Environ) -> float | None:
    """Return how long it takes until a new tenant is ready; None: it outlasted our patience."""
    started = time.perf_counter()
    while time.perf_counter() - started < RECOVERY_SECONDS:
        with Tenant(words, environ) as new:
            try:
                new.answer()
            except RuntimeError:
                continue
            return round(time.perf_counter() - started, 2)
    return None


def _goes_on(tenant: Tenant) -> bool:
    try:
        return "per_second" in tenant.answer()
    except RuntimeError:
        return False
