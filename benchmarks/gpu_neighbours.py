"""Interference between tenants of a GPU, and the effects of killed and faulting neighbors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .gpu_tenants import Environ, Tenant, concurrent_rates, median_rate, run_worker

# Number of rows of a small matrix: a product of such matrices leaves most of a GPU idle.
SMALL = 256
RECOVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Workloads:
    """The worker arguments of each workload, and the workload's rate without other tenants."""

    args: Mapping[str, Sequence[object]]
    baseline: Mapping[str, float]

    @classmethod
    def measure(cls, environ: Environ, seconds: float, size: int, runs: int) -> Workloads:
        words: dict[str, Sequence[object]] = {
            "large": ["compute", seconds, size],
            "small": ["compute", seconds, min(SMALL, size)],
            "copy": ["copy", seconds],
        }
        return cls(words, {kind: median_rate(w, environ, runs) for kind, w in words.items()})

    def side_by_side(self, kinds: Sequence[str], environ: Environ) -> dict[str, float]:
        """Return the sum of the tenants' relative rates, and Jain's fairness index of these rates.

        A relative rate is the rate with the other tenants, divided by the rate without them. The
        sum is 1 if the GPU only alternates between tenants. The index is 1 if all relative rates
        are equal.
        """
        rates = concurrent_rates([(self.args[kind], environ) for kind in kinds])
        parts = [rate / self.baseline[kind] for rate, kind in zip(rates, kinds, strict=True)]
        fairness = sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))
        return {"of_one_alone": round(sum(parts), 3), "fairness": round(fairness, 3)}

    def pairs(self, environ: Environ) -> dict[str, dict[str, float]]:
        """Return ``side_by_side`` of two large, two small, and one large and one copy workload."""
        pairs = (("large", "large"), ("small", "small"), ("large", "copy"))
        return {f"{a}+{b}": self.side_by_side([a, b], environ) for a, b in pairs}

    def tenants(self, count: int, environ: Environ) -> dict[str, dict[str, float]]:
        return {kind: self.side_by_side([kind] * count, environ) for kind in ("large", "small")}


def killed_neighbour(args: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Kill a tenant; return whether its neighbor continues.

    Also return the seconds until a new tenant is ready.
    """
    with Tenant(args, environ) as killed, Tenant(args, environ) as neighbour:
        for tenant in (killed, neighbour):
            tenant.message()
        for tenant in (killed, neighbour):
            tenant.go()
        killed.process.kill()
        seconds = seconds_until_tenant_ready(args, environ)
        return {"new_tenant_seconds": seconds, "neighbour_continues": _continues(neighbour)}


def fault_of_a_neighbour(args: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Cause a memory fault in a tenant; return its error code and the effects.

    The effects are the seconds until a new tenant is ready, and whether the neighbor continues.
    """
    with Tenant(args, environ) as neighbour:
        neighbour.message()
        neighbour.go()
        try:
            code = run_worker(["fault"], environ)["code"]
        except RuntimeError as error:
            return {"why_not": str(error)}
        seconds = seconds_until_tenant_ready(args, environ)
        continues = _continues(neighbour)
    return {
        "error_code": code,
        "new_tenant_seconds": seconds,
        "neighbour_continues": continues,
    }


def seconds_until_tenant_ready(args: Sequence[object], environ: Environ) -> float | None:
    """Return the seconds until a new tenant is ready; None after ``RECOVERY_SECONDS``."""
    started = time.perf_counter()
    while time.perf_counter() - started < RECOVERY_SECONDS:
        with Tenant(args, environ) as new:
            try:
                new.message()
            except RuntimeError:
                continue
            return round(time.perf_counter() - started, 2)
    return None


def _continues(tenant: Tenant) -> bool:
    try:
        return "per_second" in tenant.message()
    except RuntimeError:
        return False
