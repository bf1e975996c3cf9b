"""Invitations to sign up: created by administrators, for one domain and the role ``user``."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller, Target
from bai_services.core.accounts.sign_ups import CreatedSignUpInvitation, SignUpInvitation
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.sign_ups import SignUpStore

from ..context import ManagerContext
from . import authorizer
from .domains import Domains
from .projects import Projects
from .sign_ups import hash_of_token

DEFAULT_DAYS = 7


class SignUpInvitations:
    """List, create and delete invitations; the token is returned once, and only its hash stored."""

    def __init__(self, context: ManagerContext, domains: Domains, projects: Projects) -> None:
        self._store = SignUpStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._domains = domains
        self._projects = projects

    async def page(self, caller: Caller, query: ListQuery) -> Page[SignUpInvitation]:
        visible = authorizer.visibility(caller, "sign-up-invitation.read")
        return await self._store.page(query, visible.domain)

    async def get(self, caller: Caller, invitation_id: str) -> SignUpInvitation:
        visible = authorizer.visibility(caller, "sign-up-invitation.read")
        found = await self._store.invitation(invitation_id)
        if found is None or visible.domain not in (None, found.domain):
            raise NotFound("there is no such invitation, or you may not see it")
        return found

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> CreatedSignUpInvitation:
        """Create an invitation; only this response contains its token."""
        domain = spec.get("domain") or caller.domain or ""
        authorizer.require(caller, "sign-up-invitation.write")
        authorizer.require(caller, "sign-up-invitation.write", Target(domain=domain))
        await self._domains.get(caller, domain)
        project_id = None
        if key := spec.get("project"):
            try:
                project = await self._projects.get(caller, f"{domain}/{key}")
            except NotFound:
                project = await self._projects.get(caller, key)
            if project.domain != domain:
                raise InvalidRequest(f"project {key} is not in domain {domain}", field="project")
            project_id = project.id
        now, token = self._clock(), secrets.token_urlsafe(32)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "created_by": caller.username or caller.role,
            "description": spec.get("description", ""),
            "token_hash": hash_of_token(token),
            "domain": domain,
            "project_id": project_id,
            "max_uses": spec.get("max_uses", 1),
            "uses": 0,
            "expires_at": now + timedelta(days=spec.get("valid_days", DEFAULT_DAYS)),
        }
        entry = self._audit.entry(
            caller,
            "sign-up-invitation.create",
            values["id"],
            domain=domain,
            max_uses=values["max_uses"],
        )
        await self._store.add_invitation(values, entry)
        stored = await self.get(caller, values["id"])
        return CreatedSignUpInvitation(**fields_of(stored), token=token)

    async def delete(self, caller: Caller, invitation_id: str) -> None:
        """Delete an invitation: it can no longer be used. Existing accounts remain."""
        found = await self.get(caller, invitation_id)
        authorizer.require(caller, "sign-up-invitation.write", Target(domain=found.domain))
        entry = self._audit.entry(
            caller, "sign-up-invitation.delete", found.id, domain=found.domain, uses=found.uses
        )
        await self._store.remove_invitation(found.id, entry)
