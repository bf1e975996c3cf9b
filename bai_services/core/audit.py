"""Entries of the audit log, and the changed values that they contain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# Fields with secret values: an entry only states that they have changed.
SECRET_FIELDS = frozenset(
    {"password", "new_secret", "secret_key", "request", "environ", "bootstrap_script", "callback"}
)
# Maximum number of changed fields with values in an entry.
MAX_CHANGED_FIELDS = 50
# Maximum length of a value as JSON; longer values are truncated.
MAX_VALUE_CHARS = 300


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action, its actor and target, and its outcome (``done`` or an error code).

    ``domain`` is the domain of the target; domain admins may read the entries of their domain.
    ``on_behalf_of`` is the user for whom another component or an administrator acted.
    ``owner_id`` is the owner of the target, who may read the entries of other actors.
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
    on_behalf_of: str = ""
    owner_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEntry(AuditEntry):
    """An entry as stored; later entries have larger ids.

    ``entity_name`` is the name of the object at the time of the action. It equals ``entity_id`` if
    the name identifies the object or the entry contains no name. ``position`` and ``hash`` belong
    to the hash chain; they are None until the entry is chained.
    """

    id: int
    entity_name: str
    position: int | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class OwnerEntry:
    """An entry as shown to the owner of its object, without the actor's address."""

    id: int
    at: datetime
    actor: str
    on_behalf_of: str
    action: str
    entity: str
    entity_id: str
    entity_name: str
    outcome: str
    details: Mapping[str, Any]


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of an entry for an update: the requested fields and the changed values.

    ``after`` has the requested fields. The value of a changed field is ``{"before": …, "after":
    …}``; the value of a secret field is empty. The number of fields and the length of each value
    are limited.
    """
    changes: dict[str, Any] = {}
    for name in sorted(after):
        if len(changes) == MAX_CHANGED_FIELDS:
            break
        if name in SECRET_FIELDS:
            changes[name] = {}
            continue
        old, new = shortened(before.get(name)), shortened(after[name])
        if old != new:
            changes[name] = {"before": old, "after": new}
    return {"fields": sorted(after), "changes": changes}


def shortened(value: Any) -> Any:
    """Return ``value`` as a JSON-compatible value; a long value is truncated."""
    plain = _plain(value)
    text = json.dumps(plain, ensure_ascii=False)
    return plain if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    return str(value)
