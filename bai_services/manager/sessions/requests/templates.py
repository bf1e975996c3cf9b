"""Session templates: stored session requests of a user, a project or a domain."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.spec import MERGED_FIELDS, PRIVATE_FIELDS
from bai_services.core.sessions.templates import Audience, Template
from bai_services.db.sessions.templates import TemplateReader, TemplateRow, TemplateStore

from ...accounts import authorizer
from ...accounts.projects import Projects
from ...context import ManagerContext

# A list of templates contains their whole requests, so this limit also bounds the size of lists.
MAX_REQUEST_BYTES = 32 * 1024


class Templates:
    """Manages templates. Only administrators create templates of a project or a domain."""

    def __init__(self, context: ManagerContext, projects: Projects) -> None:
        self._store = TemplateStore(context.database)
        self._projects = projects
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Template]:
        page = await self._store.page(query, _reader(caller))
        return page.with_items([_template(caller, row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> Template:
        """Return the template with the id or name ``key``.

        A name is searched in this order: the caller's own templates, templates of projects,
        templates of the domain, other users' templates that the caller may see.

        Raises
        ------
        NotFound
            If no visible template matches.
        Conflict
            If several templates in the same step of this order have the name.
        """
        return _template(caller, await self._find(caller, key))

    async def apply(self, caller: Caller, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request of a template, overridden by the fields of ``given``.

        Mappings (``MERGED_FIELDS``) are merged entry by entry.
        """
        request = dict((await self._find(caller, key)).request)
        merged = {**request, **given}
        for name in sorted(MERGED_FIELDS):
            if name in given and isinstance(request.get(name), Mapping):
                merged[name] = {**request[name], **given[name]}
        return merged

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Template:
        """Store a request with a name, a description and an audience.

        Raises
        ------
        AlreadyExists
            If the audience already has a template with that name.
        QuotaExceeded
            If the audience has the maximum number of templates.
        InvalidRequest
            If the name or the request is not valid, or the audience is ``project`` and the project
            is missing.
        Forbidden
            If the caller may not create templates for the audience.
        """
        authorizer.require(caller, "template.write")
        check_stored_request(spec["request"])
        audience = Audience(spec.get("audience") or Audience.OWNER)
        now = self._clock()
        values = {
            "id": str(uuid.uuid4()),
            "name": check_slug("template", spec["name"]),
            "description": spec.get("description") or "",
            "request": spec["request"],
            "created_at": now,
            "changed_at": now,
            **await self._audience_columns(caller, audience, spec),
        }
        target = _target(values["domain"], values["project_id"], values["owner_id"], caller.role)
        _require_write(caller, target)
        entry = self._audit.entry(
            caller,
            "template.create",
            values["id"],
            domain=values["domain"],
            owner_id=values["owner_id"],
            name=values["name"],
        )
        return _template(caller, await self._store.create(values, entry))

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Template:
        """Update the name, description or request; the audience cannot change."""
        row = await self._find(caller, key)
        _require_write(caller, _target_of(row))
        check_stored_request(changes.get("request") or {})
        if "name" in changes:
            check_slug("template", changes["name"])
        values = {**changes, "changed_at": self._clock()}
        details = self._audit.changes(fields_of(row), changes)
        entry = self._entry(caller, "update", row, **details)
        return _template(caller, await self._store.update(row.id, values, entry))

    async def delete(self, caller: Caller, key: str) -> None:
        row = await self._find(caller, key)
        _require_write(caller, _target_of(row))
        await self._store.delete(row.id, self._entry(caller, "delete", row))

    async def _find(self, caller: Caller, key: str) -> TemplateRow:
        rows = await self._store.named(key, _reader(caller))
        for candidates in (
            [row for row in rows if row.owner_id and row.owner_id == caller.user_id],
            [row for row in rows if row.project_id],
            [row for row in rows if not row.owner_id],
            rows,
        ):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                raise Conflict(
                    f"several templates are named {key!r}; use an id",
                    candidates=[row.id for row in candidates],
                )
        raise NotFound(f"there is no template {key!r}, or you may not see it", template=key)

    async def _audience_columns(
        self, caller: Caller, audience: Audience, spec: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the columns that store the audience of a template."""
        if audience is Audience.OWNER:
            columns = {"owner_id": caller.user_id, "domain": caller.domain}
            return {**columns, "project_id": None, "scope": f"user:{caller.user_id}"}
        if audience is Audience.PROJECT:
            if not spec.get("project"):
                raise InvalidRequest("specify the project of the template", field="project")
            project = await self._projects.get(caller, spec["project"])
            columns = {"project_id": project.id, "domain": project.domain}
            return {**columns, "owner_id": None, "scope": f"project:{project.id}"}
        columns = {"owner_id": None, "project_id": None, "domain": caller.domain}
        return {**columns, "scope": f"domain:{caller.domain}"}

    def _entry(self, caller: Caller, verb: str, row: TemplateRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"template.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )


def _reader(caller: Caller) -> TemplateReader | None:
    visible = authorizer.visibility(caller, "template.read")
    if visible.is_unrestricted:
        return None
    return TemplateReader(
        caller.user_id,
        caller.domain,
        caller.projects,
        is_domain_wide=visible.domain is not None,
        hidden_roles=visible.hidden_roles,
    )


def _target_of(row: TemplateRow) -> Target:
    return _target(row.domain, row.project_id, row.owner_id, row.owner_role)


def _target(
    domain: str, project_id: str | None, owner_id: str | None, owner_role: Role | None
) -> Target:
    owner = Owner(owner_id, owner_role) if owner_id and owner_role else None
    return Target(domain=domain, project_id=project_id, owner=owner)


def _require_write(caller: Caller, target: Target) -> None:
    """Raise ``Forbidden`` if the caller may not change a template that the caller may see.

    For example, the members of a project may use its templates, but not change them.
    """
    if not reaches(caller, "template.write", target):
        raise Forbidden(
            "only administrators may create or change templates of a project or a domain",
            action="template.write",
        )


def _template(caller: Caller, row: TemplateRow) -> Template:
    audience = Audience.DOMAIN
    if row.owner_id:
        audience = Audience.OWNER
    elif row.project_id:
        audience = Audience.PROJECT
    private = PRIVATE_FIELDS & set(row.request)
    hidden = [] if _may_read_private(caller, row) else sorted(private)
    return Template(
        id=row.id,
        name=row.name,
        description=row.description,
        audience=audience,
        owner=row.owner,
        owner_id=row.owner_id,
        project=row.project,
        project_id=row.project_id,
        domain=row.domain,
        request={key: value for key, value in row.request.items() if key not in hidden},
        created_at=row.created_at,
        changed_at=row.changed_at,
        hidden_fields=hidden,
    )


def _may_read_private(caller: Caller, row: TemplateRow) -> bool:
    """Return whether a caller who may see a template may also read its private fields.

    Monitors may see all templates, but read private fields only in templates that they may use.
    """
    if caller.role is not Role.MONITOR or row.owner_id == caller.user_id:
        return True
    if row.project_id:
        return row.project_id in caller.projects
    return not row.owner_id and row.domain == caller.domain


def check_stored_request(request: Mapping[str, Any], owner: str = "template") -> None:
    """Raise ``InvalidRequest`` if a request is too large or has secret variables.

    ``owner`` is the noun for the object that stores the request.
    """
    size = len(json.dumps(request, default=str))
    if size > MAX_REQUEST_BYTES:
        raise InvalidRequest(
            f"the request has {size} bytes; a {owner} can have at most {MAX_REQUEST_BYTES}; "
            "store scripts in a folder",
            field="request",
        )
    if request.get("secret_environ"):
        raise InvalidRequest(
            f"a {owner} cannot contain secret variables; set them (environ, secret_environ) when "
            "you create a session",
            field="secret_environ",
        )
