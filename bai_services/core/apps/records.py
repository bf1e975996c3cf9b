"""App shares, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ListedShare:
    """A share of a session's app.

    Depending on ``audience``, ``user`` or ``project`` is the name of the recipient; both are None
    for a public share.
    """

    id: str
    session_id: str
    session: str
    owner: str
    app: str
    audience: str
    user: str | None
    project: str | None
    allowed_addresses: Sequence[str] | None
    expires_at: datetime
    created_at: datetime
    created_by: str
    url: str


@dataclass(frozen=True, slots=True)
class AdmittedVisit:
    """An admitted visitor; the visitor's browser sends the token ``visit`` until ``expires_at``."""

    visit: str
    expires_at: datetime
    audience: str
