"""`/agent-invitations`, and the routes with which a machine joins and leaves."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.cluster import joining as records
from bai_services.core.cluster.model import EngineName
from bai_services.core.listing import ListQuery, Page
from bai_services.manager.cluster.joining import JoinTerms

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, Secret

_TAG = "agents"


class NewAgentInvitation(Body):
    resource_group: NameText = "default"
    valid_minutes: Annotated[int, Field(ge=1, le=records.MAX_MINUTES)] = records.DEFAULT_MINUTES


class AgentInvitation(ResponseModel):
    """``used_at`` and ``agent_id``: null before a machine has used the invitation."""

    id: str
    created_at: datetime
    created_by: str
    resource_group: str
    expires_at: datetime
    used_at: datetime | None
    agent_id: str | None


class CreatedAgentInvitation(AgentInvitation):
    """``token``: no later response contains it. A machine joins with `bai-agent join URL --token
    TOKEN`.
    """

    token: str


class NewAgent(Body):
    """``token``: the token of an invitation. ``credential``: `bai-agent-` and 32 random bytes in
    URL-safe base64, which the machine has generated. ``resource_group``: "" for the invitation's
    group. ``engine``: null means the resource group's engine; other engines are refused.
    """

    token: Secret
    agent_id: NameText
    credential: Secret
    resource_group: NameText = ""
    engine: EngineName | None = None


class SwarmJoin(ResponseModel):
    token: str
    addresses: list[str]


class StoragePath(ResponseModel):
    name: str
    path: str


class AgentJoin(ResponseModel):
    """``swarm``: null if the installation has no Swarm. ``storage``: folders of the storage hosts,
    which must be mounted on the machine.
    """

    agent_id: str
    resource_group: str
    engine: str
    swarm: SwarmJoin | None
    storage: list[StoragePath]


class AgentMembership(ResponseModel):
    """``status``: empty before the first heartbeat."""

    agent_id: str
    resource_group: str
    status: str
    schedulable: bool
    kernels: int


class InvitationsHandler(APIHandler):
    @operation("List invitations of agents", tag=_TAG, returns=AgentInvitation, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.AgentInvitation]:
        return await self.manager.cluster.joins.page(self.caller, query)

    @operation(
        "Create an invitation of an agent",
        tag=_TAG,
        body=NewAgentInvitation,
        returns=CreatedAgentInvitation,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewAgentInvitation) -> records.CreatedAgentInvitation:
        return await self.manager.cluster.joins.invite(self.caller, body.given_fields())


class InvitationHandler(APIHandler):
    @operation("Read an invitation of an agent", tag=_TAG, returns=AgentInvitation)
    async def get(self, key: str) -> records.AgentInvitation:
        return await self.manager.cluster.joins.get(self.caller, key)

    @operation("Delete an invitation of an agent", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.joins.delete(self.caller, key)


class JoinsHandler(APIHandler):
    @operation(
        "Join as an agent, with the token of an invitation",
        tag=_TAG,
        body=NewAgent,
        returns=AgentJoin,
        status=HTTPStatus.CREATED,
        is_open=True,
    )
    async def post(self, body: NewAgent) -> records.AgentJoin:
        return await self.manager.cluster.joins.join(
            body.token.get_secret_value(),
            body.agent_id,
            body.credential.get_secret_value(),
            JoinTerms(body.resource_group, body.engine),
            self.settings["sign_in"].client_ip(self.request),
        )


class JoinHandler(APIHandler):
    @operation("Read how an agent has joined", tag=_TAG, returns=AgentJoin)
    async def get(self, key: str) -> records.AgentJoin:
        return await self.manager.cluster.joins.membership(self.caller, key)


class MembershipHandler(APIHandler):
    @operation("Read the state of an agent that has joined", tag=_TAG, returns=AgentMembership)
    async def get(self, key: str) -> records.AgentMembership:
        return await self.manager.cluster.joins.state(self.caller, key)

    @operation("Leave: delete the agent and its credential", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.joins.leave(self.caller, key)


class DrainHandler(APIHandler):
    @operation("Place no new sessions on an agent", tag=_TAG, returns=AgentMembership)
    async def post(self, key: str) -> records.AgentMembership:
        return await self.manager.cluster.joins.drain(self.caller, key)


_ONE = r"/agents/(?P<key>[^/]+)"
ROUTES = [
    ("/agent-invitations", InvitationsHandler),
    (r"/agent-invitations/(?P<key>[^/]+)", InvitationHandler),
    ("/agent-joins", JoinsHandler),
    (r"/agent-joins/(?P<key>[^/]+)", JoinHandler),
    (_ONE + "/membership", MembershipHandler),
    (_ONE + "/drain", DrainHandler),
]
