"""Elastic sessions, waiting sessions and free resources of a group; decided sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...resources import ResourceSlots
from ..caps import Scope


@dataclass(frozen=True, slots=True)
class ElasticSession:
    """A running session that may be resized between ``minimum`` and ``preferred``.

    ``devices`` maps each of its share slots to a device id. ``may_grow`` and ``may_shrink`` are
    false while a resize is in progress, and for some time afterwards.
    """

    id: str
    agent_id: str
    scopes: Sequence[Scope]
    size: ResourceSlots
    minimum: ResourceSlots
    preferred: ResourceSlots
    devices: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = True
    may_shrink: bool = True


@dataclass(frozen=True, slots=True)
class FreeAgent:
    """Free amounts of an agent: of its plain slots, and of each healthy device in thousandths.

    ``families``: the family of each device.
    """

    id: str
    slots: Mapping[str, int]
    devices: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session that waits for capacity or quota.

    ``agents``: the agents on which the session may run. ``share``: the slot of the requested device
    share, "" if no share is requested. ``is_plain``: the session has one kernel and no other device
    slots. Elastic sessions shrink only to make room for plain sessions.
    """

    id: str
    scopes: Sequence[Scope]
    slots: ResourceSlots
    agents: frozenset[str]
    share: str = ""
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class Resizing:
    """A new size of a session; ``beneficiary``: the waiting session that needs it, or ""."""

    session_id: str
    size: ResourceSlots
    beneficiary: str = ""
