"""Counters of requests and tokens since the last report."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

# Upper bounds of the classes of latency, in milliseconds. The last one contains everything.
LATENCY_BOUNDS = (
    5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 3_600_000,
)  # fmt: skip

# The manager accepts no larger number in a report.
MAX_COUNT = 2**31 - 1


@dataclass(slots=True)
class Requests:
    """Requests of an endpoint or of one of its revisions."""

    requests: int = 0
    errors: int = 0
    latency_ms: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float, *, is_error: bool) -> None:
        """Count a request; ``seconds`` is the time until the head of its response."""
        self.requests += 1
        self.errors += is_error
        last = len(LATENCY_BOUNDS) - 1
        bound = LATENCY_BOUNDS[min(last, bisect_left(LATENCY_BOUNDS, seconds * 1000))]
        self.latency_ms[bound] = self.latency_ms.get(bound, 0) + 1

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

    def request(self, endpoint: str, revision: str, seconds: float, *, is_error: bool) -> None:
        """Count a request; ``revision`` is "" if no replica has answered it."""
        self._of(endpoint).add(seconds, is_error=is_error)
        if revision:
            key = (endpoint, revision)
            if (counted := self.revisions.get(key)) is None:
                counted = self.revisions[key] = Requests()
            counted.add(seconds, is_error=is_error)

    def token(self, token: str, tokens: tuple[int, int]) -> None:
        if (use := self.tokens.get(token)) is None:
            use = self.tokens[token] = TokenUse()
        use.requests += 1
        # The numbers come from replicas: without the bound, one replica could make every report of
        # this gateway invalid.
        use.input_tokens = min(MAX_COUNT, use.input_tokens + tokens[0])
        use.output_tokens = min(MAX_COUNT, use.output_tokens + tokens[1])

    def take(self) -> Measures:
        taken = Measures(self.endpoints, self.revisions, self.tokens)
        self.endpoints, self.revisions, self.tokens = {}, {}, {}
        return taken

    def _of(self, endpoint: str) -> Requests:
        if (counted := self.endpoints.get(endpoint)) is None:
            counted = self.endpoints[endpoint] = Requests()
        return counted
