"""Load balancing: choose a revision by weight, then the replica with the fewest requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

# The replica of a prefix is skipped if it has more requests than the least busy replica plus this
# number.
PREFIX_EXCESS = 4


class Candidate(Protocol):
    """A replica to which a request can be sent."""

    @property
    def id(self) -> str: ...
    @property
    def outstanding(self) -> int: ...


CandidateT = TypeVar("CandidateT", bound=Candidate)


class WeightedTurns:
    """Chooses among names by their weights, in a fixed sequence without long runs of one name.

    At each choice, every name gains its weight as credit; the name with the most credit is chosen
    and loses the sum of the weights. After a number of choices equal to this sum, the shares are
    exact.
    """

    __slots__ = ("_credits",)

    def __init__(self) -> None:
        self._credits: dict[str, int] = {}

    def next(self, names: Iterable[str], weights: Mapping[str, int]) -> str | None:
        """Return the next name; None if no name has a positive weight."""
        shares = {name: weights.get(name, 0) for name in names if weights.get(name, 0) > 0}
        if len(shares) < 2:
            return next(iter(shares), None)
        current = {name: self._credits.get(name, 0) + shares[name] for name in shares}
        chosen = max(current, key=lambda name: current[name])
        current[chosen] -= sum(shares.values())
        self._credits = current
        return chosen


def least_outstanding(candidates: Sequence[CandidateT], turn: int) -> CandidateT:
    """Return a candidate with the fewest requests; ``turn`` rotates among equal candidates."""
    start = turn % len(candidates)
    best = candidates[start]
    fewest = best.outstanding
    for candidate in (*candidates[start + 1 :], *candidates[:start]):
        if candidate.outstanding < fewest:
            best, fewest = candidate, candidate.outstanding
    return best


def by_prefix(candidates: Sequence[CandidateT], prefix: bytes) -> CandidateT:
    """Return the candidate for requests with a prefix; if it is too busy, the least busy candidate.

    Requests with the same prefix reuse the KV cache of one replica. With rendezvous hashing, a new
    or lost replica affects only its own prefixes.
    """
    chosen = max(candidates, key=lambda candidate: _score(candidate.id, prefix))
    least = min(candidate.outstanding for candidate in candidates)
    if chosen.outstanding - least > PREFIX_EXCESS:
        return least_outstanding(candidates, 0)
    return chosen


def _score(name: str, prefix: bytes) -> bytes:
    return hashlib.blake2b(prefix, key=name.encode()[:64], digest_size=8).digest()


def owner_limit(maximum: int, connections: int, running: int) -> int:
    """Return how many requests an owner may have at the same time.

    An owner may have at most as many requests as there are free connections. This is the dynamic
    threshold for shared buffers of Choudhury and Hahne (1998). If N owners send as many requests as
    they can, each of them gets 1/(N + 1) of the connections. The remaining part is free for owners
    without requests.

    >>> owner_limit(10, connections=20, running=0)
    10
    >>> owner_limit(10, connections=20, running=16)
    4
    """
    return min(maximum, connections - running)
