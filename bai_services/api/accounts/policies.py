"""`/keypair-policies`, `/user-policies`, `/project-policies`"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import Field

from bai_services.core.apps.shares import Sharing
from bai_services.core.listing import ListQuery
from bai_services.core.scheduling.caps import MAX_PENDING_SESSIONS
from bai_services.manager.accounts.policies import Policies

from ..base import APIHandler, operation
from ..fields import Body, Count, Hosts, NameText, Shown, Slots, SlotTexts

Priority = Annotated[int, Field(ge=0, le=100)]
QuotaBytes = Annotated[int, Field(ge=-1, le=2**62)]


class KeypairPolicyChange(Body):
    default_for_unspecified: Literal["LIMITED", "UNLIMITED"] = "LIMITED"
    total_resource_slots: Slots = {}
    max_session_lifetime_seconds: Count = 0
    max_lifetime_extension_seconds: Count = 0
    max_concurrent_sessions: Count | None = None
    max_pending_sessions: Count | None = None
    max_pending_slots: Slots | None = None
    max_priority: Priority | None = None
    max_containers_per_session: Count = 1
    idle_timeout_seconds: Count = 0
    allowed_vfolder_hosts: Hosts = {}


class NewKeypairPolicy(KeypairPolicyChange):
    name: NameText


class KeypairPolicy(Shown):
    name: str
    created_at: datetime
    default_for_unspecified: str
    total_resource_slots: SlotTexts
    max_session_lifetime_seconds: int
    max_lifetime_extension_seconds: int
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None
    max_pending_slots: SlotTexts | None
    max_priority: int | None
    max_containers_per_session: int
    idle_timeout_seconds: int
    allowed_vfolder_hosts: dict[str, list[str]]


class UserPolicyChange(Body):
    max_vfolder_count: Count = 0
    max_quota_scope_bytes: QuotaBytes = -1
    max_concurrent_logins: Annotated[Count, Field(ge=1)] | None = None
    app_sharing: Sharing = Sharing.NONE
    max_app_share_seconds: Count = 0
    total_resource_slots: Slots = {}
    max_concurrent_sessions: Count | None = None
    max_pending_sessions: Count | None = MAX_PENDING_SESSIONS


class NewUserPolicy(UserPolicyChange):
    name: NameText


class UserPolicy(Shown):
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int
    max_concurrent_logins: int | None
    app_sharing: Sharing
    max_app_share_seconds: int
    total_resource_slots: SlotTexts
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None


class ProjectPolicyChange(Body):
    max_vfolder_count: Count = 0
    max_quota_scope_bytes: QuotaBytes = -1


class NewProjectPolicy(ProjectPolicyChange):
    name: NameText


class ProjectPolicy(Shown):
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int


def _handlers(
    kind: str, made: type[Body], changed: type[Body], shown: type[Shown]
) -> list[tuple[str, type[APIHandler]]]:
    """Return the two routes of one kind of policy."""
    tag = f"{kind} policies"

    class PoliciesHandler(APIHandler):
        @operation(f"List {kind} policies", tag=tag, returns=shown, is_list=True)
        async def get(self, query: ListQuery) -> Any:
            return await policies(self).page(self.caller, query)

        @operation(
            f"Make a {kind} policy",
            tag=tag,
            body=made,
            returns=shown,
            status=HTTPStatus.CREATED,
        )
        async def post(self, body: Body) -> Any:
            return await policies(self).create(self.caller, body.given())

    class PolicyHandler(APIHandler):
        @operation(f"Read a {kind} policy", tag=tag, returns=shown)
        async def get(self, key: str) -> Any:
            return await policies(self).get(self.caller, key)

        @operation(f"Change a {kind} policy", tag=tag, body=changed, returns=shown)
        async def patch(self, key: str, body: Body) -> Any:
            return await policies(self).update(self.caller, key, body.given())

        @operation(f"Delete an unused {kind} policy", tag=tag, status=HTTPStatus.NO_CONTENT)
        async def delete(self, key: str) -> None:
            await policies(self).delete(self.caller, key)

    def policies(handler: APIHandler) -> Policies:
        accounts = handler.manager.accounts
        return {
            "keypair": accounts.keypair_policies,
            "user": accounts.user_policies,
            "project": accounts.project_policies,
        }[kind]

    path = f"/{kind}-policies"
    return [(path, PoliciesHandler), (path + r"/(?P<key>[^/]+)", PolicyHandler)]


ROUTES = [
    *_handlers("keypair", NewKeypairPolicy, KeypairPolicyChange, KeypairPolicy),
    *_handlers("user", NewUserPolicy, UserPolicyChange, UserPolicy),
    *_handlers("project", NewProjectPolicy, ProjectPolicyChange, ProjectPolicy),
]
