"""Build the session services."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.sessions.callbacks import CallbackStore
from bai_services.db.sessions.deadlines import DeadlineStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.suspensions import SuspensionStore
from bai_services.db.sessions.time_limits import TimeLimitStore
from bai_services.db.sessions.usage_samples import UsageSampleStore

from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..accounts.users import Users
from ..context import ManagerContext
from ..events import Events
from ..scheduling.admission_checks import FittingAgents
from ..scheduling.services import SchedulingServices
from ..scheduling.start_explanations import StartExplanations
from ..settings import Settings
from .callback_calls import CallbackCalls
from .callbacks import Callbacks
from .idle_checks.checkers import IdleCheckers
from .idle_checks.judging import IdleJudging
from .idle_checks.replays import IdleReplays
from .idle_checks.requests import IdleCheckRequests
from .kernels import Kernels
from .launch import Launch, LaunchPlans
from .lifecycle import Lifecycle
from .logs import Logs
from .preview import SessionPreviews
from .requests.options import Options
from .requests.requests import Folders, Requests
from .requests.secret_environ import SecretEnviron
from .requests.templates import Templates
from .sessions import SessionRecords, Sessions
from .suspensions import Suspensions
from .time_limits.activity import SessionActivity
from .time_limits.deadlines import Deadlines
from .time_limits.lifetimes import Lifetimes
from .usage.histories import UsageHistories
from .usage.sampling import UsageSampling


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Services for sessions, and the loops for time limits, callbacks and usage samples."""

    sessions: Sessions
    options: Options
    previews: SessionPreviews
    templates: Templates
    launch: Launch
    kernels: Kernels
    logs: Logs
    lifetimes: Lifetimes
    activity: SessionActivity
    explanations: StartExplanations
    records: SessionRecords
    deadlines: Deadlines
    callbacks: Callbacks
    usage_sampling: UsageSampling
    usage_histories: UsageHistories
    idle_checkers: IdleCheckers
    idle_judging: IdleJudging
    idle_replays: IdleReplays
    idle_requests: IdleCheckRequests
    suspensions: Suspensions


def session_services(
    context: ManagerContext,
    settings: Settings,
    *,
    events: Events,
    lifecycle: Lifecycle,
    scheduling: SchedulingServices,
    folders: Folders,
    projects: Projects,
    users: Users,
) -> SessionServices:
    """Build the services and pass them their dependencies."""
    database, clock, audit = context.database, context.clock, context.audit
    store, kernel_store = SessionStore(database), KernelStore(database)
    request_store, time_limits = RequestStore(database), TimeLimitStore(database)
    dependencies, samples = DependencyStore(database), UsageSampleStore(database)
    idle_store, idle_checkers = IdleCheckStore(database), IdleCheckers(context, projects, users)
    suspensions = SuspensionStore(database)
    usage_sampling = UsageSampling(samples, scheduling.lease, clock)
    secret_environ = SecretEnviron(settings.key)
    plans = LaunchPlans(kernel_store, folders, secret_environ)
    kernels = Kernels(kernel_store, store, lifecycle, plans, usage_sampling, clock)
    requests = Requests(
        request_store,
        folders,
        clock,
        settings.callback_reach,
        FittingAgents(request_store, scheduling.jit_warmup),
        secret_environ,
    )
    sessions = Sessions(
        store,
        requests,
        lifecycle,
        kernels,
        dependencies,
        scheduling.wait_states,
        suspensions,
        events=events,
        settings=settings,
        clock=clock,
        audit=audit,
    )
    return SessionServices(
        sessions=sessions,
        options=Options(request_store, requests, folders, scheduling.jit_warmup),
        previews=SessionPreviews(requests, request_store, store, scheduling.scheduler, clock),
        templates=Templates(context, projects),
        launch=Launch(store, kernel_store, plans, lifecycle, clock),
        kernels=kernels,
        logs=Logs(sessions),
        lifetimes=Lifetimes(sessions, time_limits, store, lifecycle, audit),
        activity=SessionActivity(sessions, time_limits, store, clock, audit),
        explanations=StartExplanations(sessions, scheduling.scheduler, request_store),
        records=SessionRecords(AllocationStore(database)),
        deadlines=Deadlines(
            DeadlineStore(database), dependencies, lifecycle, clock, lease=scheduling.lease
        ),
        callbacks=Callbacks(
            CallbackStore(database),
            CallbackCalls(settings.callback_reach),
            KeypairSecrets(settings.key),
            lifecycle,
            clock,
            lease=scheduling.lease,
        ),
        usage_sampling=usage_sampling,
        usage_histories=UsageHistories(sessions, store, samples, usage_sampling, clock),
        idle_checkers=idle_checkers,
        idle_judging=IdleJudging(idle_store, samples, lifecycle, clock, lease=scheduling.lease),
        idle_replays=IdleReplays(idle_checkers, idle_store, samples, clock),
        idle_requests=IdleCheckRequests(sessions, idle_store, clock, audit),
        suspensions=Suspensions(
            sessions,
            store,
            suspensions,
            lifecycle,
            clock,
            audit,
            lease=scheduling.lease,
            retention=timedelta(days=settings.suspended_days),
        ),
    )
