"""Manage overflow rules, which move a project's waiting sessions to another resource group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Target, reaches
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.scheduling.overflow import DEFAULT_AFTER_SECONDS, OverflowRule
from bai_services.db.scheduling.overflow import OverflowStore

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..cluster.resource_groups import ResourceGroups
from ..context import ManagerContext


class OverflowRules:
    """Manages rules. Domain admins set the rules of their projects; members may read them.

    Domain admins cannot change a rule that a superadmin created or last changed.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: OverflowStore,
        projects: Projects,
        groups: ResourceGroups,
    ) -> None:
        self._store = store
        self._projects = projects
        self._groups = groups
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[OverflowRule]:
        visible = authorizer.visibility(caller, "overflow-rule.read")
        return await self._store.page(query, visible.domain, visible.project_ids)

    async def get(self, caller: Caller, key: str) -> OverflowRule:
        visible = authorizer.visibility(caller, "overflow-rule.read")
        rule = await self._store.find(key)
        if (
            rule is None
            or (visible.domain is not None and rule.domain != visible.domain)
            or (visible.project_ids is not None and rule.project_id not in visible.project_ids)
        ):
            raise NotFound("there is no such overflow rule", overflow_rule=key)
        return rule

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> OverflowRule:
        """Create a rule of the project ``spec["project"]``.

        Raises
        ------
        AlreadyExists
            If the project has a rule for these resource groups.
        InvalidRequest
            If both resource groups are the same, or have different engines.
        QuotaExceeded
            If the project has too many rules.
        """
        authorizer.require(caller, "overflow-rule.write")
        project = await self._projects.get(caller, spec["project"])
        authorizer.require(caller, "overflow-rule.write", Target(domain=project.domain))
        source = await self._groups.get(caller, spec["from_group"])
        target = await self._groups.get(caller, spec["to_group"])
        if source.name == target.name:
            raise InvalidRequest("from_group and to_group must differ", field="to_group")
        if source.engine != target.engine:
            raise InvalidRequest(
                f"resource group {source.name} has the engine {source.engine}, {target.name} has "
                f"{target.engine}; both must have the same engine",
                field="to_group",
            )
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "changed_by_role": caller.role,
            "project_id": project.id,
            "from_group": source.name,
            "to_group": target.name,
            "position": spec.get("position", 0),
            "after_seconds": spec.get("after_seconds", DEFAULT_AFTER_SECONDS),
        }
        entry = self._audit.entry(
            caller,
            "overflow-rule.create",
            values["id"],
            domain=project.domain,
            name=project.name,
            from_group=source.name,
            to_group=target.name,
        )
        return await self._store.create(values, entry)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> OverflowRule:
        """Change a rule.

        If ``changes`` contains ``version``, it must be the current version.
        """
        rule = await self._find_writable(caller, key)
        values = {
            name: value
            for name, value in changes.items()
            if name != "version" and value is not None
        }
        details = self._audit.changes(fields_of(rule), values)
        entry = self._audit.entry(
            caller,
            "overflow-rule.update",
            rule.id,
            domain=rule.domain,
            name=rule.project,
            **details,
        )
        values["changed_by_role"] = caller.role
        await self._store.update(rule.id, changes.get("version") or rule.version, values, entry)
        return await self.get(caller, key)

    async def delete(self, caller: Caller, key: str) -> None:
        rule = await self._find_writable(caller, key)
        entry = self._audit.entry(
            caller,
            "overflow-rule.delete",
            rule.id,
            domain=rule.domain,
            name=rule.project,
            from_group=rule.from_group,
            to_group=rule.to_group,
        )
        await self._store.delete(rule.id, entry)

    async def _find_writable(self, caller: Caller, key: str) -> OverflowRule:
        authorizer.require(caller, "overflow-rule.write")
        rule = await self.get(caller, key)
        if not reaches(caller, "overflow-rule.write", Target(domain=rule.domain)):
            raise NotFound("there is no such overflow rule", overflow_rule=key)
        authorizer.require_not_above(caller, "overflow-rule.write", "rule", rule.changed_by_role)
        return rule
