"""Request bodies for endpoints, revisions, tokens, and the reports of gateways."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.serving.autoscaling import MAX_PERIODS
from bai_services.core.serving.prompt_prefix import MAX_PREFIX_CHARACTERS
from bai_services.core.serving.settings import MAX_REPLICAS
from bai_services.core.sessions.kernel_group import MAX_KERNELS
from bai_services.core.tags import MAX_TAGS

from ..fields import Body, Count, Instant, LongText, NameText, ShortText, SlotsInput
from ..sessions.bodies import MAX_MOUNTS, MAX_VARIABLES

MAX_COMMAND = 16 * 1024
MAX_DEFINITION = 64 * 1024
MAX_NETWORKS = 16
# Limited because each waiting request occupies one of the gateway's connections, which all
# endpoints share.
MAX_QUEUE = 10_000
MAX_REPORTED = 10_000

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
Limit = Annotated[int, Field(ge=1, le=1_000_000)]
Definition = Annotated[str, Field(max_length=MAX_DEFINITION)]


class HealthCheck(Body):
    """Times are seconds. ``start_seconds``: how long a new replica may take until its first
    successful check. ``max_failures``: consecutive failed checks after which a replica is replaced.
    """

    path: ShortText = "/health"
    interval_seconds: float = Field(default=10, ge=1, le=3600)
    timeout_seconds: float = Field(default=15, ge=0.1, le=600)
    max_failures: int = Field(default=10, ge=1, le=1000)
    expected_status: int = Field(default=200, ge=100, le=599)
    start_seconds: float = Field(default=60, ge=1, le=86400)


class Rollout(Body):
    """How a revision replaces the previous one. ``max_surge``, ``max_unavailable``: for rolling
    updates. ``canary_percent``: share of the requests before the promotion. ``is_automatic``: false
    makes blue-green and canary rollouts wait for a promotion. ``max_failures``: failed replicas
    after which the previous revision is restored. ``max_error_percent``: the same for failed
    requests (status 5xx or no response) of the new revision; ``max_p99_ms``: the same for the 99th
    percentile of its latency. ``min_requests``: minimum number of requests of the new revision for
    these checks; an automatic canary with such a check is promoted after this number of requests.
    ``min_seconds``: how long an automatic canary is observed, from its first request.
    """

    strategy: Literal["rolling", "blue-green", "canary"] = "rolling"
    max_surge: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    max_unavailable: int = Field(default=0, ge=0, le=MAX_REPLICAS)
    canary_percent: int = Field(default=10, ge=1, le=99)
    is_automatic: bool = True
    max_failures: int = Field(default=3, ge=1, le=100)
    max_error_percent: int | None = Field(default=None, ge=0, le=100)
    min_requests: int = Field(default=100, ge=1, le=1_000_000)
    max_p99_ms: int | None = Field(default=None, ge=1, le=3_600_000)
    min_seconds: int = Field(default=0, ge=0, le=7 * 86400)


class ModelMount(Body):
    """A folder of the replicas; it is always read-only."""

    vfolder: ShortText
    path: ShortText = ""


class ReplicaRequest(Body):
    """Fields of the replicas' sessions, as in ``POST /sessions``. With a ``cluster_size`` above 1,
    the server runs in the main kernel.
    """

    image: ShortText | None = None
    resources: SlotsInput = {}
    preset: NameText | None = None
    resource_group: NameText | None = None
    mounts: list[ModelMount] = Field(default=[], max_length=MAX_MOUNTS)
    environ: dict[str, str] = Field(default={}, max_length=MAX_VARIABLES)
    shared_memory: ShortText | None = None
    priority: int | None = None
    cluster_size: int | None = Field(default=None, ge=1, le=MAX_KERNELS)
    cluster_mode: NameText | None = None


class Settings(Body):
    """The program of a revision's replicas.

    ``command``: for a shell; the server must listen on the port ``$BAI_SERVICE_PORT`` of 127.0.0.1.
    ``model_folder``: mounted at ``/home/work/model``; ``$BAI_MODEL_PATH`` is the path of the model
    in it. ``protocol``: protocol of the server. With grpc, gateways with HAProxy are needed, and
    the health check uses the standard health service, with its path as service name. Missing fields
    are taken from the definition, then from the variant.
    """

    variant: NameText | None = None
    command: str | None = Field(default=None, max_length=MAX_COMMAND)
    port: int | None = Field(default=None, ge=2, le=65535)
    protocol: Literal["http", "grpc"] | None = None
    health: HealthCheck | None = None
    model_folder: ShortText | None = None
    model_path: ShortText | None = None
    request: ReplicaRequest | None = None
    rollout: Rollout | None = None


class ScheduledBounds(Body):
    """Bounds at times of the week. ``days``: such as ``mon-fri`` or ``sat,sun``. ``starts``,
    ``ends``: such as ``08:00``; a period that ends before it starts ends on the next day.
    """

    days: ShortText
    starts: ShortText
    ends: ShortText
    zone: ShortText = "UTC"
    min_replicas: Replicas
    max_replicas: int = Field(ge=1, le=MAX_REPLICAS)


class ScalingRule(Body):
    """Sets the number of replicas according to the load of the endpoint.

    ``measure``: ``requests`` (running and waiting requests in all gateways), ``cpu`` (used share of
    the requested CPU cores in percent), ``metric-total`` or ``metric-mean`` (the sum or the mean
    over the replicas of ``metric``, a Prometheus metric of the runtime), or ``query`` (the result
    of the Prometheus query ``query``). A replica should have a load of ``target`` times
    ``utilization``, as a mean over ``stable_seconds``, or in a burst over ``panic_seconds``. With a
    minimum of 0, the last replica ends after ``idle_seconds`` without load. ``schedule``: the first
    period that contains the current time replaces the bounds. Fields that are not given keep their
    values.
    """

    min_replicas: Replicas | None = None
    max_replicas: int | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    measure: Literal["requests", "cpu", "metric-total", "metric-mean", "query"] | None = None
    metric: ShortText | None = None
    query: LongText | None = None
    schedule: list[ScheduledBounds] | None = Field(default=None, max_length=MAX_PERIODS)
    target: float | None = Field(default=None, ge=0.01, le=1_000_000)
    utilization: float | None = Field(default=None, ge=0.05, le=1)
    stable_seconds: int | None = Field(default=None, ge=10, le=600)
    panic_seconds: int | None = Field(default=None, ge=2, le=600)
    idle_seconds: int | None = Field(default=None, ge=10, le=3600)


class EndpointLimits(Body):
    """Limits of each gateway.

    ``replicas``: a fixed number, which ends autoscaling. ``scaling``: a rule instead.
    ``max_queue``: requests that wait for a replica. ``queue_seconds``: how long they wait.
    ``request_seconds``: limit for the time to the first byte of a response, and between two chunks.
    ``prefix_characters``: requests whose prompts begin with the same characters go to the same
    replica, which can reuse its KV cache; 0: the replica with the fewest requests is chosen.
    ``tags``: short labels to filter lists of endpoints.
    """

    replicas: Replicas | None = None
    scaling: ScalingRule | None = None
    is_public: bool | None = None
    max_queue: int | None = Field(default=None, ge=0, le=MAX_QUEUE)
    queue_seconds: int | None = Field(default=None, ge=0, le=3600)
    max_concurrent_per_replica: Limit | None = None
    request_seconds: int | None = Field(default=None, ge=1, le=86400)
    max_body_bytes: int | None = Field(default=None, ge=1, le=2**40)
    prefix_characters: int | None = Field(default=None, ge=0, le=MAX_PREFIX_CHARACTERS)
    tags: list[ShortText] | None = Field(default=None, max_length=MAX_TAGS)


class NewEndpoint(EndpointLimits):
    """``definition``: text of a ``model-definition.yaml``, for the variant ``custom``.
    ``definition_file``: instead, the path of the file in the model folder; the folder's
    ``deployment-config.yaml``, or else its ``service-definition.toml``, then sets the image and the
    resources that are not given.
    """

    name: NameText
    project: ShortText | None = None
    settings: Settings = Settings()
    definition: Definition | None = None
    definition_file: ShortText | None = None


class NewTrial(Body):
    """The settings of a replica to try, with the fields of ``POST /endpoints``."""

    project: ShortText | None = None
    settings: Settings = Settings()
    definition: Definition | None = None
    definition_file: ShortText | None = None


class EndpointChange(EndpointLimits):
    """``version``: the version that you have read; if there is a newer one, you get a conflict."""

    version: Count | None = None
    is_paused: bool | None = None


class NewRevision(Body):
    """Missing settings are taken from the target revision. ``is_applied``: false only saves the
    revision; ``POST /endpoints/{key}/rollback`` begins its rollout later. ``last_revision``: the
    number of the newest revision that you have read; if there is a newer one, you get a conflict.
    """

    is_applied: bool = True
    last_revision: Count | None = None
    settings: Settings = Settings()
    definition: Definition | None = None
    definition_file: ShortText | None = None


class Rollback(Body):
    """``revision``: the number of an earlier or saved revision."""

    revision: Count


class EmptyBody(Body):
    """A body without fields."""


class DefinitionText(Body):
    definition: Definition


class NewToken(Body):
    """``networks``: addresses from which the token can be used; empty: all."""

    name: NameText
    networks: list[ShortText] = Field(default=[], max_length=MAX_NETWORKS)
    expires_at: Instant | None = None
    requests_per_minute: Limit | None = None
    max_concurrent: Limit | None = None


class Counts(Body):
    requests: Count = 0
    errors: Count = 0
    # Upper bound of the bucket in milliseconds: number of requests.
    latency_ms: dict[NameText, Count] = Field(default={}, max_length=100)


class EndpointReport(Counts):
    id: NameText
    in_flight: Count = 0
    queued: Count = 0
    revisions: dict[NameText, Counts] = Field(default={}, max_length=100)


class TokenReport(Body):
    id: NameText
    requests: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0


class GatewayReport(Body):
    """Counts since the last report. ``report_id``: a repeated report counts once.

    ``drained``: draining replicas that have no more requests. ``failed``: replicas that failed
    their health check.
    """

    gateway_id: NameText = Field(min_length=1)
    report_id: NameText = Field(min_length=1)
    endpoints: list[EndpointReport] = Field(default=[], max_length=MAX_REPORTED)
    tokens: list[TokenReport] = Field(default=[], max_length=MAX_REPORTED)
    drained: list[NameText] = Field(default=[], max_length=MAX_REPORTED)
    failed: list[NameText] = Field(default=[], max_length=MAX_REPORTED)
