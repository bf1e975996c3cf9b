"""`/keypair-policies`, `/user-policies`, `/project-policies`: the limits of accounts."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.accounts import records
from bai_services.core.apps.shares import Sharing
from bai_services.core.cluster.custom_images import DEFAULT_MAX_CUSTOM_IMAGES
from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.caps import MAX_PENDING_SESSIONS
from bai_services.core.sessions.schedules.records import DEFAULT_MAX_SCHEDULES
from bai_services.manager.accounts.policies import Policies

from ..base import APIHandler, operation
from ..fields import Body, Count, Hosts, NameText, ResponseModel, SlotsInput, SlotsOutput

Priority = Annotated[int, Field(ge=0, le=100)]
QuotaBytes = Annotated[int, Field(ge=-1, le=2**62)]


class KeypairPolicyChange(Body):
    default_for_unspecified: Literal["LIMITED", "UNLIMITED"] = "LIMITED"
    total_resource_slots: SlotsInput = {}
    max_session_lifetime_seconds: Count = 0
    max_lifetime_extension_seconds: Count = 0
    max_concurrent_sessions: Count | None = None
    max_pending_sessions: Count | None = None
    max_pending_slots: SlotsInput | None = None
    max_priority: Priority | None = None
    max_containers_per_session: Count = 1
    idle_timeout_seconds: Count = 0
    allowed_vfolder_hosts: Hosts = {}


class NewKeypairPolicy(KeypairPolicyChange):
    name: NameText


class KeypairPolicy(ResponseModel):
    name: str
    created_at: datetime
    default_for_unspecified: str
    total_resource_slots: SlotsOutput
    max_session_lifetime_seconds: int
    max_lifetime_extension_seconds: int
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None
    max_pending_slots: SlotsOutput | None
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
    total_resource_slots: SlotsInput = {}
    max_concurrent_sessions: Count | None = None
    max_pending_sessions: Count | None = MAX_PENDING_SESSIONS
    max_schedules: Count | None = DEFAULT_MAX_SCHEDULES
    max_custom_images: Count | None = DEFAULT_MAX_CUSTOM_IMAGES
    allows_public_endpoints: bool = False


class NewUserPolicy(UserPolicyChange):
    name: NameText


class UserPolicy(ResponseModel):
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int
    max_concurrent_logins: int | None
    app_sharing: Sharing
    max_app_share_seconds: int
    total_resource_slots: SlotsOutput
    max_concurrent_sessions: int | None
    max_pending_sessions: int | None
    max_schedules: int | None
    max_custom_images: int | None
    allows_public_endpoints: bool


class ProjectPolicyChange(Body):
    """``allows_member_imports``: members of a model store import models without an approval."""

    max_vfolder_count: Count = 0
    max_quota_scope_bytes: QuotaBytes = -1
    max_custom_images: Count | None = None
    allows_member_imports: bool = False


class NewProjectPolicy(ProjectPolicyChange):
    name: NameText


class ProjectPolicy(ResponseModel):
    name: str
    created_at: datetime
    max_vfolder_count: int
    max_quota_scope_bytes: int
    max_custom_images: int | None
    allows_member_imports: bool


def _handlers(
    kind: str, create_body: type[Body], change_body: type[Body], policy: type[ResponseModel]
) -> list[tuple[str, type[APIHandler]]]:
    """Return the routes of one kind of policy: ``keypair``, ``user`` or ``project``."""
    tag = f"{kind} policies"

    class PoliciesHandler(APIHandler):
        @operation(f"List {kind} policies", tag=tag, returns=policy, is_list=True)
        async def get(self, query: ListQuery) -> Page[records.ResourcePolicy]:
            return await policies(self).page(self.caller, query)

        @operation(
            f"Create a {kind} policy",
            tag=tag,
            body=create_body,
            returns=policy,
            status=HTTPStatus.CREATED,
        )
        async def post(self, body: Body) -> records.ResourcePolicy:
            return await policies(self).create(self.caller, body.given_fields())

    class PolicyHandler(APIHandler):
        @operation(f"Read a {kind} policy", tag=tag, returns=policy)
        async def get(self, key: str) -> records.ResourcePolicy:
            return await policies(self).get(self.caller, key)

        @operation(f"Change a {kind} policy", tag=tag, body=change_body, returns=policy)
        async def patch(self, key: str, body: Body) -> records.ResourcePolicy:
            return await policies(self).update(self.caller, key, body.given_fields())

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
