"""Session templates: stored session requests of a user, a project or a domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Audience(StrEnum):
    """Users who may use a template: its owner, or all users of a project or a domain."""

    OWNER = "owner"
    PROJECT = "project"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A session template as shown to a caller.

    ``owner`` is set only for the audience OWNER, ``project`` only for PROJECT. ``request`` lacks
    the fields in ``hidden_fields``, because the caller may not read them.
    """

    id: str
    name: str
    description: str
    audience: Audience
    owner: str | None
    owner_id: str | None
    project: str | None
    project_id: str | None
    domain: str
    request: Mapping[str, Any]
    created_at: datetime
    changed_at: datetime
    hidden_fields: Sequence[str]
