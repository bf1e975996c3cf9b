"""Grants of folders, and invitations to folders, with the fields of the REST API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """Access of a user to a folder; a pending grant is an invitation that is not yet accepted."""

    user: str
    user_id: str
    permission: str
    granted_by: str
    created_at: datetime
    is_pending: bool = False
    invitation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation to a folder; ``owner``: the owner's user name, None for a project's folder."""

    id: str
    created_at: datetime
    vfolder_id: str
    vfolder: str
    domain: str
    owner: str | None
    invitee_id: str
    invitee: str
    inviter_id: str
    inviter: str
    permission: str
    status: str
    status_changed_at: datetime
