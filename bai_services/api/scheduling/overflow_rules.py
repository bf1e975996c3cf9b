"""`/overflow-rules`: rules by which pending sessions move to other resource groups."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling import overflow as records
from bai_services.core.scheduling.overflow import (
    DEFAULT_AFTER_SECONDS,
    MAX_AFTER_SECONDS,
    MAX_POSITION,
)

from ..base import APIHandler, operation
from ..fields import Body, Count, NameText, ResponseModel, ShortText

_TAG = "overflow rules"

Position = Annotated[int, Field(ge=0, le=MAX_POSITION)]
AfterSeconds = Annotated[int, Field(ge=0, le=MAX_AFTER_SECONDS)]


class OverflowRuleChange(Body):
    """``version``: the version that you have read; if there is a newer one, you get a conflict.

    ``position``: the rules of a project are tried in ascending order; among rules with the same
    position, the resource group in which the session costs least is first. ``after_seconds``:
    minimum wait in ``from_group``.
    """

    version: Count | None = None
    position: Position | None = None
    after_seconds: AfterSeconds | None = None


class NewOverflowRule(Body):
    """A session of ``project`` (id or name) that is pending in ``from_group`` moves to ``to_group``
    as soon as it can start there. The other fields are described at ``OverflowRuleChange``.
    """

    project: ShortText
    from_group: NameText
    to_group: NameText
    position: Position = 0
    after_seconds: AfterSeconds = DEFAULT_AFTER_SECONDS


class OverflowRule(ResponseModel):
    """A rule of a project; most fields are described at ``OverflowRuleChange``.

    ``changed_by_role``: role of the user who created or last changed the rule; domain
    administrators cannot change rules of superadmins.
    """

    id: str
    created_at: datetime
    version: int
    project_id: str
    project: str
    domain: str
    from_group: str
    to_group: str
    position: int
    after_seconds: int
    changed_by_role: str


class OverflowRulesHandler(APIHandler):
    @operation(
        "List the overflow rules of the projects that the caller may see",
        tag=_TAG,
        returns=OverflowRule,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.OverflowRule]:
        return await self.manager.overflow_rules.page(self.caller, query)

    @operation(
        "Create an overflow rule of a project",
        tag=_TAG,
        body=NewOverflowRule,
        returns=OverflowRule,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewOverflowRule) -> records.OverflowRule:
        return await self.manager.overflow_rules.create(self.caller, body.given_fields())


class OverflowRuleHandler(APIHandler):
    @operation("Read an overflow rule", tag=_TAG, returns=OverflowRule)
    async def get(self, key: str) -> records.OverflowRule:
        return await self.manager.overflow_rules.get(self.caller, key)

    @operation("Change an overflow rule", tag=_TAG, body=OverflowRuleChange, returns=OverflowRule)
    async def patch(self, key: str, body: OverflowRuleChange) -> records.OverflowRule:
        return await self.manager.overflow_rules.update(self.caller, key, body.given_fields())

    @operation("Delete an overflow rule", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.overflow_rules.delete(self.caller, key)


ROUTES = [
    ("/overflow-rules", OverflowRulesHandler),
    (r"/overflow-rules/(?P<key>[^/]+)", OverflowRuleHandler),
]
