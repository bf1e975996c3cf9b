"""`/endpoints`: model serving; `/runtime-variants`, `/model-definitions/check`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

from bai_services.core import audit
from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving import definition as definitions
from bai_services.core.serving import records, variants

from ..audit import OwnerEntry
from ..base import APIHandler, operation
from ..fields import CodedText, ResponseModel
from . import bodies

_TAG = "serving"


class ScheduledBounds(ResponseModel):
    """Bounds that apply on ``days`` from ``starts`` to ``ends`` in ``zone``."""

    days: str
    starts: str
    ends: str
    zone: str
    min_replicas: int
    max_replicas: int


class ScalingRule(ResponseModel):
    """The number of replicas follows the load. ``measure``: requests (running and waiting requests
    in all gateways), cpu, metric-total, metric-mean or query.
    """

    min_replicas: int
    max_replicas: int
    measure: str
    metric: str
    query: str
    target: float
    utilization: float
    stable_seconds: int
    panic_seconds: int
    idle_seconds: int
    schedule: list[ScheduledBounds]


class Endpoint(ResponseModel):
    """``url``: the endpoint's own host name if the installation has a domain for endpoints, else a
    path. ``path``: the path at the Hub's host. ``status``: ready, deploying, scaling, paused,
    failed or stopping. ``problem``: the last problem of the target revision. ``weights``: shares of
    the requests by revision. ``scaling``: the rule that sets ``replicas``; null: a fixed number.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    url: str
    path: str
    owner: str
    owner_id: str
    domain: str
    project: str
    project_id: str
    status: str
    problem: str
    problem_coded: CodedText | None
    is_public: bool
    is_paused: bool
    replicas: int
    scaling: ScalingRule | None
    scaling_reason: str
    scaling_reason_coded: CodedText | None
    ready_replicas: int
    starting_replicas: int
    active_revision: int | None
    target_revision: int
    is_promoted: bool
    weights: dict[str, int]
    max_queue: int
    queue_seconds: int
    max_concurrent_per_replica: int
    request_seconds: int
    max_body_bytes: int
    prefix_characters: int
    tags: list[str]
    requests: int
    errors: int


class Revision(ResponseModel):
    """``outcome``: completed, rolled-back, failed, replaced (another rollout began before it ended)
    or saved (no rollout yet); null: the rollout has not ended.
    ``requests``, ``errors``: during its last rollout, if a previous revision existed; ``p99_ms``:
    the 99th percentile of the latency of these requests.
    """

    id: str
    created_at: datetime
    number: int
    settings: dict[str, Any]
    outcome: str | None
    reason: str
    reason_coded: CodedText | None
    requests: int
    errors: int
    p99_ms: int | None
    hidden_fields: list[str]


class Replica(ResponseModel):
    """``phase``: starting, ready, draining, stopping or ended. ``id``: the id of its session."""

    id: str
    created_at: datetime
    revision: int | None
    phase: str
    session_status: str | None
    agent: str | None
    changed_at: datetime
    reason: str
    reason_coded: CodedText | None


class ReplicaChange(ResponseModel):
    """A phase that a replica has had since ``at``."""

    id: int
    at: datetime
    phase: str
    reason: str
    reason_coded: CodedText | None


class Scaling(ResponseModel):
    """A change of the number of replicas by the rule, from ``former`` to ``replicas``."""

    id: str
    created_at: datetime
    former: int
    replicas: int
    reason: str
    reason_coded: CodedText


class LoadPoint(ResponseModel):
    """``load``: the total load of all replicas, null while it is unknown. ``replicas``: the desired
    number.
    """

    at: datetime
    load: float | None
    replicas: int
    ready: int


class LoadHistory(ResponseModel):
    """``load_per_replica``: target load of one replica."""

    interval_seconds: int
    load_per_replica: float | None
    points: list[LoadPoint]


class Token(ResponseModel):
    id: str
    created_at: datetime
    name: str
    networks: list[str]
    expires_at: datetime | None
    requests_per_minute: int | None
    max_concurrent: int | None
    author: str
    requests: int
    input_tokens: int
    output_tokens: int
    last_used_at: datetime | None


class EndpointUsage(ResponseModel):
    """Requests of one day (UTC) with one token. ``token``: its name; "" for the chat page, "*" for
    requests without a token.
    """

    id: int
    day: datetime
    token: str
    requests: int
    input_tokens: int
    output_tokens: int


class CreatedToken(ResponseModel):
    """``token`` is shown only now."""

    id: str
    name: str
    token: str
    expires_at: datetime | None


class Trial(ResponseModel):
    """``state``: a sentence that describes the state. ``is_healthy``: null until the trial has
    ended. ``log``: the last lines of its output, after its end. ``session``: id of its session.
    """

    id: str
    created_at: datetime
    session: str
    session_status: str | None
    state: str
    state_coded: CodedText
    is_healthy: bool | None
    ended_at: datetime | None
    log: str


class Argument(ResponseModel):
    option: str
    kind: str
    description: str


class Variant(ResponseModel):
    """``metrics``: names of the metrics by meaning. ``metrics_path``: "" if scaling rules cannot
    read the metrics. ``metrics_port``: port of the metrics; 0 means the port of the requests.
    ``is_tested``: false if the variant has not been run with bai-hub.
    """

    name: str
    title: str
    command: str
    port: int
    health_path: str
    start_seconds: int
    arguments: list[Argument]
    metrics: dict[str, str] | None
    metrics_path: str
    metrics_port: int
    uses_definition: bool
    is_tested: bool


class HealthCheck(ResponseModel):
    path: str
    interval_seconds: float
    timeout_seconds: float
    max_failures: int
    expected_status: int
    start_seconds: float


class ModelDefinition(ResponseModel):
    name: str
    model_path: str
    command: str
    port: int | None
    health_check: HealthCheck | None
    metadata: dict[str, Any]
    protocol: str | None


class EndpointsHandler(APIHandler):
    @operation(
        "List the endpoints that the caller may see", tag=_TAG, returns=Endpoint, is_list=True
    )
    async def get(self, query: ListQuery) -> Page[records.Endpoint]:
        return await self.manager.serving.endpoints.page(self.caller, query)

    @operation(
        "Create an endpoint",
        tag=_TAG,
        body=bodies.NewEndpoint,
        returns=Endpoint,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: bodies.NewEndpoint) -> records.Endpoint:
        return await self.manager.serving.endpoints.create(self.caller, _given(body))


class EndpointHandler(APIHandler):
    @operation("Read an endpoint", tag=_TAG, returns=Endpoint)
    async def get(self, key: str) -> records.Endpoint:
        return await self.manager.serving.endpoints.get(self.caller, key)

    @operation("Change an endpoint", tag=_TAG, body=bodies.EndpointChange, returns=Endpoint)
    async def patch(self, key: str, body: bodies.EndpointChange) -> records.Endpoint:
        return await self.manager.serving.endpoints.update(self.caller, key, body.given_fields())

    @operation(
        "Stop an endpoint; it is deleted when its replicas have ended", tag=_TAG, returns=Endpoint
    )
    async def delete(self, key: str) -> records.Endpoint:
        return await self.manager.serving.endpoints.delete(self.caller, key)


class RevisionsHandler(APIHandler):
    @operation(
        "List the last revisions of an endpoint, the newest first",
        tag=_TAG,
        returns=Revision,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.Revision]:
        return await self.manager.serving.endpoints.revisions(self.caller, key, query)

    @operation(
        "Create a revision, and begin its rollout or only save it",
        tag=_TAG,
        body=bodies.NewRevision,
        returns=Endpoint,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, key: str, body: bodies.NewRevision) -> records.Endpoint:
        return await self.manager.serving.endpoints.deploy(self.caller, key, _given(body))


class RollbackHandler(APIHandler):
    @operation(
        "Begin the rollout of an earlier or saved revision",
        tag=_TAG,
        body=bodies.Rollback,
        returns=Endpoint,
    )
    async def post(self, key: str, body: bodies.Rollback) -> records.Endpoint:
        return await self.manager.serving.endpoints.roll_back(self.caller, key, body.revision)


class PromotionHandler(APIHandler):
    @operation(
        "Promote the new revision of a blue-green or canary rollout",
        tag=_TAG,
        body=bodies.EmptyBody,
        returns=Endpoint,
    )
    async def post(self, key: str, body: bodies.EmptyBody) -> records.Endpoint:
        return await self.manager.serving.endpoints.promote(self.caller, key)


class ReplicasHandler(APIHandler):
    @operation(
        "List the replicas of an endpoint, including recently ended ones",
        tag=_TAG,
        returns=Replica,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.Replica]:
        return await self.manager.serving.endpoints.replicas(self.caller, key, query)


class ReplicaChangesHandler(APIHandler):
    @operation(
        "List the phases of a replica, the last one first",
        tag=_TAG,
        returns=ReplicaChange,
        is_list=True,
    )
    async def get(self, key: str, replica: str, query: ListQuery) -> Page[records.ReplicaChange]:
        endpoints = self.manager.serving.endpoints
        return await endpoints.replica_changes(self.caller, key, replica, query)


class EndpointAuditLogHandler(APIHandler):
    @operation(
        "List the actions on an endpoint, for its owner and its administrators",
        tag=_TAG,
        returns=OwnerEntry,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[audit.OwnerEntry]:
        return await self.manager.serving.endpoints.audit_log(self.caller, key, query)


class ScalingsHandler(APIHandler):
    @operation(
        "List the last changes of the number of replicas by an endpoint's scaling rule",
        tag=_TAG,
        returns=Scaling,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.Scaling]:
        return await self.manager.serving.endpoints.scalings(self.caller, key, query)


class LoadHandler(APIHandler):
    @operation(
        "Read the load and the replicas in the last hour, of an endpoint with a scaling rule",
        tag=_TAG,
        returns=LoadHistory,
    )
    async def get(self, key: str) -> records.LoadHistory:
        return await self.manager.serving.endpoints.load(self.caller, key)


class TokensHandler(APIHandler):
    @operation("List the tokens of an endpoint", tag=_TAG, returns=Token, is_list=True)
    async def get(self, key: str, query: ListQuery) -> Page[records.EndpointToken]:
        return await self.manager.serving.tokens.page(self.caller, key, query)

    @operation(
        "Create a token; it is shown only in this response",
        tag=_TAG,
        body=bodies.NewToken,
        returns=CreatedToken,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str, body: bodies.NewToken) -> records.NewToken:
        return await self.manager.serving.tokens.create(self.caller, key, body.given_fields())


class UsageHandler(APIHandler):
    @operation(
        "List the requests and tokens of an endpoint by day and token of clients",
        tag=_TAG,
        returns=EndpointUsage,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.EndpointUsage]:
        return await self.manager.serving.tokens.usage(self.caller, key, query)


class TokenHandler(APIHandler):
    @operation("Revoke a token", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, token: str) -> None:
        await self.manager.serving.tokens.revoke(self.caller, key, token)


class TrialsHandler(APIHandler):
    @operation(
        "Try a definition: start one replica, which no gateway uses, and explain its state",
        tag=_TAG,
        body=bodies.NewTrial,
        returns=Trial,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: bodies.NewTrial) -> records.Trial:
        return await self.manager.serving.trials.create(self.caller, _given(body))


class TrialHandler(APIHandler):
    @operation("Read a trial of the caller", tag=_TAG, returns=Trial)
    async def get(self, key: str) -> records.Trial:
        return await self.manager.serving.trials.get(self.caller, key)

    @operation("End a trial of the caller", tag=_TAG, returns=Trial)
    async def delete(self, key: str) -> records.Trial:
        return await self.manager.serving.trials.end(self.caller, key)


class VariantsHandler(APIHandler):
    @operation("List the runtime variants", tag=_TAG, returns=Variant, is_list=True)
    async def get(self, query: ListQuery) -> Page[variants.Variant]:
        return self.manager.serving.endpoints.variants(self.caller, query)


class DefinitionCheckHandler(APIHandler):
    @operation(
        "Check a model definition",
        tag=_TAG,
        body=bodies.DefinitionText,
        returns=ModelDefinition,
        is_expensive=True,
        works_when_read_only=True,
    )
    async def post(self, body: bodies.DefinitionText) -> definitions.ModelDefinition:
        endpoints = self.manager.serving.endpoints
        return await endpoints.check_definition(self.caller, body.definition)


def _given(body: bodies.NewEndpoint | bodies.NewRevision | bodies.NewTrial) -> dict[str, Any]:
    """Return the given fields. A field that is null counts as not given, except in a rollout.

    In a rollout, null removes the limit of the former revision.
    """
    given = body.model_dump(exclude_unset=True, exclude_none=True)
    settings = given.get("settings") or {}
    if body.settings is not None and (rollout := body.settings.rollout) is not None:
        settings = {**settings, "rollout": rollout.model_dump(exclude_unset=True)}
    return {**given, "settings": settings}


_ONE = r"/endpoints/(?P<key>[^/]+)"
ROUTES = [
    ("/endpoints", EndpointsHandler),
    (_ONE, EndpointHandler),
    (_ONE + "/revisions", RevisionsHandler),
    (_ONE + "/rollback", RollbackHandler),
    (_ONE + "/promotion", PromotionHandler),
    (_ONE + "/replicas", ReplicasHandler),
    (_ONE + r"/replicas/(?P<replica>[^/]+)/history", ReplicaChangesHandler),
    (_ONE + "/audit-log", EndpointAuditLogHandler),
    (_ONE + "/scalings", ScalingsHandler),
    (_ONE + "/load", LoadHandler),
    (_ONE + "/usage", UsageHandler),
    (_ONE + "/tokens", TokensHandler),
    (_ONE + r"/tokens/(?P<token>[^/]+)", TokenHandler),
    ("/endpoint-trials", TrialsHandler),
    (r"/endpoint-trials/(?P<key>[^/]+)", TrialHandler),
    ("/runtime-variants", VariantsHandler),
    ("/model-definitions/check", DefinitionCheckHandler),
]
