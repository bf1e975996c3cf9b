"""Interference between tenants of a GPU, and the effect of killed or faulting neighbours."""

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
    """Command line of a tenant of each kind, and its rate alone."""

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
        """Return the sum of the tenants' rates relative to their rates alone, and Jain's index.

        Tenants one after the other would give a sum of 1; the index is 1 if all relative rates are
        equal.
        """
        rates = together([(self.words[kind], environ) for kind in kinds])
        parts = [rate / self.alone[kind] for rate, kind in zip(rates, kinds, strict=True)]
        fairness = sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))
        return {"of_one_alone": round(sum(parts), 3), "fairness": round(fairness, 3)}

    def pairs(self, environ: Environ) -> dict[str, dict[str, float]]:
        """Return the interference of pairs: large work, small work, work and copies."""
        pairs = (("large", "large"), ("small", "small"), ("large", "copy"))
        return {f"{a}+{b}": self.side_by_side([a, b], environ) for a, b in pairs}

    def crowd(self, count: int, environ: Environ) -> dict[str, dict[str, float]]:
        return {kind: self.side_by_side([kind] * count, environ) for kind in ("large", "small")}


def killed_neighbour(words: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Kill a working tenant; return whether its neighbour continues and when a new one can
    compute.
    """
    with Tenant(words, environ) as killed, Tenant(words, environ) as neighbour:
        for tenant in (killed, neighbour):
            tenant.answer()
        for tenant in (killed, neighbour):
            tenant.go()
        killed.process.kill()
        seconds = seconds_until_one_works(words, environ)
        return {"new_tenant_seconds": seconds, "neighbour_goes_on": _goes_on(neighbour)}


def fault_of_a_neighbour(words: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Let a tenant's kernel fault; return its error, the effect on its neighbour, and the recovery
    time.
    """
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
    """Return how long it takes until a new tenant is ready; None after a timeout."""
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
