"""Increases of HAProxy's counters since they were last read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Counted:
    """New requests of a pool; ``seconds`` is the mean time to the head of the response.

    ``errors`` include requests refused by HAProxy; ``failed`` counts only requests without a
    response from a replica, or with a status of 500 or more.
    """

    requests: int
    errors: int
    failed: int
    seconds: float


@dataclass
class Counters:
    """Stores the last value of each counter; HAProxy never resets its counters."""

    _last: dict[tuple[str, ...], int] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict)

    def restart(self) -> None:
        """Reset the stored values, because a new process counts from zero."""
        self._last, self._tokens = {}, {}

    def of_backend(
        self, name: str, row: Mapping[str, str], servers: Mapping[str, Mapping[str, str]]
    ) -> Counted:
        requests = self._added((name, "requests"), row.get("req_tot"))
        errors = self._added((name, "errors"), row.get("hrsp_5xx"))
        failed = sum(
            self._added((name, server, column), values.get(column))
            for server, values in servers.items()
            for column in ("hrsp_5xx", "eresp")
        )
        seconds = int(row.get("rtime") or 0) / 1000
        return Counted(requests, min(errors, requests), min(failed, requests), seconds)

    def failed_connections(self, pool: str, server: str, row: Mapping[str, str]) -> int:
        # `econ` counts only requests that found no other server.
        return sum(
            self._added((pool, server, column), row.get(column))
            for column in ("econ", "wretr", "wredis")
        )

    def of_tokens(self, entries: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Yield the new requests of each token, from all entries of the table."""
        before, self._tokens = self._tokens, dict(entries)
        for token, total in self._tokens.items():
            known = before.get(token, 0)
            # The total is smaller if HAProxy has removed the expired entry: the counter restarts
            # from zero.
            if added := total - known if total >= known else total:
                yield token, added

    def _added(self, key: tuple[str, ...], text: str | None) -> int:
        if not text:
            return 0
        before, value = self._last.get(key, 0), int(text)
        self._last[key] = value
        return value - before if value >= before else value
