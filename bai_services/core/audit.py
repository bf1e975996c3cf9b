"""Entries of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action, its actor and target, and its outcome (``done`` or an error code).

    ``domain`` is the domain of the target; domain admins may read the entries of their domain.
    ``details`` never contains a secret.
    """

    at: datetime
    actor: str
    action: str
    entity: str
    entity_id: str
    actor_id: str | None = None
    client_ip: str = ""
    domain: str | None = None
    outcome: str = "done"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEntry(AuditEntry):
    """An entry as stored; later entries have larger ids.

    ``entity_name`` is the name of the object at the time of the action, or ``entity_id`` if the
    entry contains no name.
    """

    id: int
    entity_name: str
