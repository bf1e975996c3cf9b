"""App shares, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ListedShare:
    """A share of a session's app.

    ``user`` or ``project`` is the name of the audience; both are None for a public share.
    ``allowed_addresses`` is None if visitors may connect from every network.
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
    """``visit``: the token that the visitor's browser presents until ``expires_at``."""

    visit: str
    expires_at: datetime
    audience: str
