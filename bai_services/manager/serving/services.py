"""Build the services of model serving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bai_services.core.accounts.roles import Role
from bai_services.core.serving.names import EndpointAddresses
from bai_services.db.serving.chats import ChatStore
from bai_services.db.serving.endpoints import EndpointStore
from bai_services.db.serving.gateways import GatewayStore
from bai_services.db.serving.replicas import ReplicaStore
from bai_services.db.serving.scaling import ScalingStore
from bai_services.db.serving.tokens import TokenStore
from bai_services.db.serving.trials import TrialStore
from bai_services.db.serving.usage import UsageStore

from ..accounts.callers import Callers
from ..clock import monotonic_of
from ..context import ManagerContext
from ..folders.files import Files
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.sessions import Sessions
from ..sessions.usage.sampling import UsageSampling
from ..settings import Settings
from .chats import Chats
from .definition_files import DefinitionFiles
from .endpoints import Endpoints
from .failure_reports import FailureReports
from .loads import EndpointLoads
from .metric_readings import MetricReadings
from .replica_launch import ReplicaLaunches, ReplicaSecrets
from .routes import GatewayRoutes
from .runner import EndpointRunner
from .scaler import EndpointScaler
from .tokens import EndpointTokens
from .trials import Trials


@dataclass(frozen=True, slots=True)
class ServingServices:
    """Endpoints, their tokens, the loop that runs them, and the gateways' routing table."""

    endpoints: Endpoints
    tokens: EndpointTokens
    chats: Chats
    trials: Trials
    runner: EndpointRunner
    routes: GatewayRoutes
    failures: FailureReports


def replica_launches(
    context: ManagerContext, settings: Settings, wake: Callable[[], None]
) -> ReplicaLaunches:
    """Build the launch of replicas, which sessions need; ``wake`` wakes the runner."""
    secrets = ReplicaSecrets(settings.key)
    database = context.database
    return ReplicaLaunches(
        ReplicaStore(database), TrialStore(database), secrets, context.clock, wake
    )


def serving_services(
    context: ManagerContext,
    settings: Settings,
    *,
    sessions: Sessions,
    files: Files,
    usage: UsageSampling,
    lifecycle: Lifecycle,
    callers: Callers,
    lease: Lease,
    require_writable: Callable[[Role], None],
) -> ServingServices:
    """Build the services and pass them their dependencies."""
    database = context.database
    secrets, replicas, tokens, usage_by_day, scalings, chats = (
        ReplicaSecrets(settings.key),
        ReplicaStore(database),
        TokenStore(database),
        UsageStore(database),
        ScalingStore(database),
        ChatStore(database),
    )
    failures = FailureReports(replicas, secrets, context.clock, lambda: changed())
    routes = GatewayRoutes(
        GatewayStore(database), secrets, context.clock, lambda: runner.wake(), failures
    )
    readings = MetricReadings(secrets, settings.prometheus_url, monotonic_of(context.clock))
    scaler = EndpointScaler(scalings, EndpointLoads(scalings, usage, readings, context.clock))
    runner = EndpointRunner(
        context,
        replicas,
        tokens,
        usage_by_day,
        chats,
        sessions,
        callers,
        secrets,
        scaler,
        require_writable,
        lease=lease,
        changed=routes.changed,
    )

    def changed() -> None:
        runner.wake()
        routes.changed()

    endpoints = Endpoints(
        context,
        EndpointStore(database),
        scalings,
        sessions,
        DefinitionFiles(files),
        _addresses(settings),
        changed,
        has_prometheus=bool(settings.prometheus_url),
    )
    trials = Trials(context, TrialStore(database), endpoints, sessions, callers, secrets, lease)
    lifecycle.listen(runner.session_changed)
    lifecycle.listen(trials.session_changed)
    return ServingServices(
        endpoints=endpoints,
        tokens=EndpointTokens(context, tokens, usage_by_day, endpoints, routes.changed),
        chats=Chats(context, chats, tokens, endpoints, routes.changed),
        trials=trials,
        runner=runner,
        routes=routes,
        failures=failures,
    )


def _addresses(settings: Settings) -> EndpointAddresses:
    prefix = settings.hub_base_url.rstrip("/") + "/services/bai-serve"
    scheme = settings.public_origin.partition("://")[0] or "https"
    return EndpointAddresses(prefix, settings.gateway_domain, scheme)
