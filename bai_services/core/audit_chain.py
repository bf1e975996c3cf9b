"""Hash chain over the audit log: each hash covers an entry and the previous hash.

Positions in the chain are consecutive. When old entries are removed, the position and the hash of
the last removed entry remain as the anchor of the chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum

from .audit import LoggedEntry

# Hash before the first entry.
GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class ChainState:
    """Ends of the chain: the last removed entry (anchor) and the last chained entry (head)."""

    anchor_position: int = 0
    anchor_hash: str = GENESIS
    head_position: int = 0
    head_hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Link:
    """Position and hash of an entry in the chain."""

    entry_id: int
    position: int
    hash: str


class Damage(StrEnum):
    ALTERED = "altered"
    REMOVED = "removed"
    INSERTED = "inserted"


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """The first problem of the chain; ``entry_id`` is None if the affected entry is not known."""

    kind: Damage
    position: int
    entry_id: int | None
    message: str


def entry_hash(previous: str, position: int, entry: LoggedEntry) -> str:
    """Return the hash of ``entry`` at ``position``, chained to the hash ``previous``."""
    content = [
        previous,
        position,
        entry.id,
        entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        entry.actor_id,
        entry.actor,
        entry.on_behalf_of,
        entry.client_ip,
        entry.action,
        entry.entity,
        entry.entity_id,
        entry.owner_id,
        entry.domain,
        entry.outcome,
        entry.details,
    ]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def link(state: ChainState, entries: Iterable[LoggedEntry]) -> list[Link]:
    """Append entries to the chain; return their positions and hashes in the same order."""
    position, previous = state.head_position, state.head_hash
    links = []
    for entry in entries:
        position += 1
        previous = entry_hash(previous, position, entry)
        links.append(Link(entry.id, position, previous))
    return links


def check(position: int, previous: str, entries: Sequence[LoggedEntry]) -> ChainProblem | None:
    """Check consecutive entries of the chain, ordered by position.

    ``position`` and ``previous`` are the position and the hash of the entry before the first.
    """
    for entry in entries:
        position += 1
        if entry.position != position:
            return ChainProblem(
                Damage.REMOVED, position, None, f"the entry at position {position} was removed"
            )
        previous = entry_hash(previous, position, entry)
        if entry.hash != previous:
            return ChainProblem(
                Damage.ALTERED,
                position,
                entry.id,
                f"entry {entry.id} at position {position} was altered, or an entry was removed or "
                "inserted before it",
            )
    return None


def check_end(state: ChainState, position: int, last_hash: str) -> ChainProblem | None:
    """Check that the last entry of the chain is its head."""
    if position < state.head_position:
        return ChainProblem(
            Damage.REMOVED,
            position + 1,
            None,
            f"the entries from position {position + 1} to {state.head_position} were removed",
        )
    if last_hash != state.head_hash:
        return ChainProblem(
            Damage.ALTERED,
            position,
            None,
            f"the hash of the last entry, at position {position}, is not the stored one",
        )
    return None
