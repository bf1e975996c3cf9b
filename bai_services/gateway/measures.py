"""Counters of requests and tokens since the last report."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Upper bounds of the latency buckets, in milliseconds; the last bucket contains everything.
LATENCY_BOUNDS = (
    5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 3_600_000,
)  # fmt: skip

# Maximum number that the manager accepts in a report.
MAX_COUNT = 2**31 - 1


@dataclass(slots=True)
class Requests:
    """Requests of an endpoint or of one of its revisions."""

    requests: int = 0
    errors: int = 0
    latency_ms: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0  # sum of all; not reported

    def add(self, count: int, errors: int, seconds: float) -> None:
        """Count requests; ``seconds`` is their mean time until the head of the response."""
        self.requests += count
        self.errors += errors
        self.seconds += count * seconds
        last = len(LATENCY_BOUNDS) - 1
        bound = LATENCY_BOUNDS[min(last, bisect_left(LATENCY_BOUNDS, seconds * 1000))]
        self.latency_ms[bound] = self.latency_ms.get(bound, 0) + count

    def include(self, other: Requests) -> None:
        """Add the requests of another counter."""
        self.requests += other.requests
        self.errors += other.errors
        self.seconds += other.seconds
        for bound, count in other.latency_ms.items():
            self.latency_ms[bound] = self.latency_ms.get(bound, 0) + count

    def as_json(self) -> dict[str, Any]:
        latencies = {str(bound): count for bound, count in sorted(self.latency_ms.items())}
        return {"requests": self.requests, "errors": self.errors, "latency_ms": latencies}


@dataclass(slots=True)
class TokenUse:
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }


@dataclass(slots=True)
class Measures:
    """All counters of this process; ``take`` returns them and starts from zero."""

    endpoints: dict[str, Requests] = field(default_factory=dict)
    revisions: dict[tuple[str, str], Requests] = field(default_factory=dict)
    tokens: dict[str, TokenUse] = field(default_factory=dict)
    # Endpoints since the start of the process.
    totals: dict[str, Requests] = field(default_factory=dict)

    def request(self, endpoint: str, revision: str, seconds: float, *, is_error: bool) -> None:
        """Count a request; ``revision`` is "" if no replica has answered it."""
        self.requests(endpoint, revision, 1, int(is_error), seconds, failed=int(is_error))

    def requests(
        self,
        endpoint: str,
        revision: str,
        count: int,
        errors: int,
        seconds: float,
        *,
        failed: int,
    ) -> None:
        """Count requests of which only the mean time is known; ``failed`` are the errors of the
        revision itself.
        """
        self._of(endpoint).add(count, errors, seconds)
        if revision:
            key = (endpoint, revision)
            if (counted := self.revisions.get(key)) is None:
                counted = self.revisions[key] = Requests()
            counted.add(count, failed, seconds)

    def token(self, token: str, tokens: tuple[int, int], count: int = 1) -> None:
        if (use := self.tokens.get(token)) is None:
            use = self.tokens[token] = TokenUse()
        use.requests += count
        # Limited because replicas report these numbers: a larger number of one replica would make
        # all reports of this gateway invalid.
        use.input_tokens = min(MAX_COUNT, use.input_tokens + tokens[0])
        use.output_tokens = min(MAX_COUNT, use.output_tokens + tokens[1])

    def take(self) -> Measures:
        taken = Measures(self.endpoints, self.revisions, self.tokens)
        self._add_to_totals()
        self.endpoints, self.revisions, self.tokens = {}, {}, {}
        return taken

    def totals_of(self, endpoints: Iterable[str]) -> dict[str, Requests]:
        """Return the requests of endpoints since the start, and discard all other endpoints."""
        kept = set(endpoints)
        self.totals = {key: each for key, each in self.totals.items() if key in kept}
        current = {}
        for key in kept:
            counted = current[key] = Requests()
            for part in (self.totals.get(key), self.endpoints.get(key)):
                if part is not None:
                    counted.include(part)
        return current

    def _add_to_totals(self) -> None:
        for key, counted in self.endpoints.items():
            self.totals.setdefault(key, Requests()).include(counted)

    def _of(self, endpoint: str) -> Requests:
        if (counted := self.endpoints.get(endpoint)) is None:
            counted = self.endpoints[endpoint] = Requests()
        return counted
