"""Build the session services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from bai_services.core.accounts.roles import Role
from bai_services.db.cluster.custom_images import CustomImageStore
from bai_services.db.cluster.image_pulls import ImagePullStore
from bai_services.db.scheduling.advance_reservations import AdvanceReservationStore
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.scheduling.overflow import OverflowStore
from bai_services.db.sessions.callbacks import CallbackStore
from bai_services.db.sessions.deadlines import DeadlineStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.elastic import ElasticStore
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.lost_agents import LostAgentStore
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.resizes import ResizeStore
from bai_services.db.sessions.setups import SetupStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.stored_logs import StoredLogStore
from bai_services.db.sessions.suspensions import SuspensionStore
from bai_services.db.sessions.time_limits import TimeLimitStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.usage.budgets import BudgetStore
from bai_services.db.usage.prices import UsagePriceStore

from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..accounts.projects import Projects
from ..accounts.users import Users
from ..cluster.pull_secrets import PullSecrets
from ..context import ManagerContext
from ..events import Events
from ..metrics import Metrics
from ..scheduling.admission_checks import FittingAgents
from ..scheduling.overflow import Overflow
from ..scheduling.overflow_targets import OverflowTargets
from ..scheduling.services import SchedulingServices
from ..scheduling.start_explanations import StartExplanations
from ..settings import Settings
from .agent_launches import AgentLaunches
from .callback_calls import CallbackCalls
from .callbacks import Callbacks
from .elastic import Elastic
from .ends import SessionEnds
from .idle_checks.checkers import IdleCheckers
from .idle_checks.judging import IdleJudging
from .idle_checks.replays import IdleReplays
from .idle_checks.requests import IdleCheckRequests
from .kernel_resizes import KernelResizes
from .kernels import Kernels
from .launch import Launch, LaunchPlans
from .lifecycle import Lifecycle
from .logs import Logs
from .lost_kernels import LostKernels
from .planned_stops import DrainReplica, PlannedStops
from .preview import SessionPreviews
from .replica_launch import ReplicaLaunch
from .requests.options import Options
from .requests.requests import Folders, Requests
from .requests.secret_environ import SecretEnviron
from .requests.templates import Templates
from .resizes import Resizes
from .schedules.runner import ScheduleRunner
from .schedules.schedules import Schedules
from .sessions import SessionRecords, Sessions
from .setups import SessionSetups, Setups
from .stored_logs import StoredLogs
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
    setups: Setups
    session_setups: SessionSetups
    launch: Launch
    kernels: Kernels
    lost_kernels: LostKernels
    pull_secrets: PullSecrets
    logs: Logs
    stored_logs: StoredLogs
    lifetimes: Lifetimes
    activity: SessionActivity
    explanations: StartExplanations
    overflow: Overflow
    records: SessionRecords
    deadlines: Deadlines
    callbacks: Callbacks
    usage_sampling: UsageSampling
    usage_histories: UsageHistories
    idle_checkers: IdleCheckers
    idle_judging: IdleJudging
    idle_replays: IdleReplays
    idle_requests: IdleCheckRequests
    resizes: Resizes
    elastic: Elastic
    schedules: Schedules
    schedule_runner: ScheduleRunner
    suspensions: Suspensions
    planned_stops: PlannedStops


def session_services(
    context: ManagerContext,
    settings: Settings,
    *,
    events: Events,
    lifecycle: Lifecycle,
    scheduling: SchedulingServices,
    metrics: Metrics,
    folders: Folders,
    projects: Projects,
    users: Users,
    callers: Callers,
    replicas: ReplicaLaunch,
    drain_replica: DrainReplica,
    require_writable: Callable[[Role], None],
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
    setups = SessionSetups(SetupStore(database), settings.key)
    plans = LaunchPlans(kernel_store, folders, secret_environ, replicas)
    lost_kernels = LostKernels(
        LostAgentStore(database),
        lifecycle,
        clock,
        audit,
        settings.heartbeat_deadline_seconds,
    )
    ends = SessionEnds(store, kernel_store, lifecycle, clock, setups, lost_kernels)
    resize_store = ResizeStore(database)
    kernel_resizes = KernelResizes(resize_store, store, lifecycle, scheduling.scheduler.wake, clock)
    pull_secrets = PullSecrets(database, KeypairSecrets(settings.key))
    kernels = Kernels(
        kernel_store,
        store,
        lifecycle,
        plans,
        usage_sampling,
        kernel_resizes,
        clock,
        setups=setups,
        pull_secrets=pull_secrets,
        launches=AgentLaunches(kernel_store, store, plans, lifecycle, ends, clock),
        lost=lost_kernels,
    )
    requests = Requests(
        request_store,
        folders,
        clock,
        settings.callback_targets,
        FittingAgents(
            request_store,
            scheduling.jit_warmup,
            has_provisioning=bool(settings.provisioning_command),
        ),
        secret_environ,
        AdvanceReservationStore(database),
        setups,
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
        drain_replica=drain_replica,
        is_committing=CustomImageStore(database).is_committing,
    )
    resizes = Resizes(sessions, resize_store, kernels, kernel_resizes, lifecycle, clock, audit)
    overflow = OverflowStore(database)
    overflow_targets = OverflowTargets(overflow, UsagePriceStore(database))
    templates = Templates(context, projects)
    planned_stops = PlannedStops(lifecycle, audit, drain_replica)
    options = Options(
        request_store,
        requests,
        folders,
        scheduling.jit_warmup,
        None if settings.shows_absent_images else ImagePullStore(database),
    )
    return SessionServices(
        sessions=sessions,
        options=options,
        previews=SessionPreviews(
            requests,
            request_store,
            store,
            scheduling.scheduler,
            clock,
            UsagePriceStore(database),
            BudgetStore(database),
            overflow_targets,
        ),
        templates=templates,
        setups=Setups(context, projects, settings.key),
        session_setups=setups,
        launch=Launch(store, kernel_store, plans, lifecycle, clock, ends=ends, replicas=replicas),
        kernels=kernels,
        lost_kernels=lost_kernels,
        pull_secrets=pull_secrets,
        logs=Logs(sessions),
        stored_logs=StoredLogs(
            StoredLogStore(database),
            SetupStore(database),
            scheduling.lease,
            clock,
            settings.session_log_days,
        ),
        lifetimes=Lifetimes(sessions, time_limits, store, lifecycle, audit),
        activity=SessionActivity(sessions, time_limits, store, clock, audit),
        explanations=StartExplanations(
            sessions, scheduling.scheduler, request_store, overflow_targets
        ),
        overflow=Overflow(
            context,
            overflow,
            request_store,
            UsagePriceStore(database),
            scheduling.scheduler,
            lifecycle,
            scheduling.lease,
        ),
        records=SessionRecords(AllocationStore(database)),
        deadlines=Deadlines(
            DeadlineStore(database),
            dependencies,
            lifecycle,
            planned_stops,
            clock,
            lease=scheduling.lease,
        ),
        callbacks=Callbacks(
            CallbackStore(database),
            CallbackCalls(settings.callback_targets),
            KeypairSecrets(settings.key),
            lifecycle,
            clock,
            lease=scheduling.lease,
        ),
        usage_sampling=usage_sampling,
        usage_histories=UsageHistories(sessions, store, samples, usage_sampling, clock),
        idle_checkers=idle_checkers,
        idle_judging=IdleJudging(
            idle_store, samples, planned_stops, clock, lease=scheduling.lease, metrics=metrics
        ),
        idle_replays=IdleReplays(idle_checkers, idle_store, samples, clock),
        idle_requests=IdleCheckRequests(sessions, idle_store, time_limits, clock, audit),
        resizes=resizes,
        elastic=Elastic(
            ElasticStore(database), resize_store, resizes, clock, lease=scheduling.lease
        ),
        schedules=Schedules(context, templates, options),
        schedule_runner=ScheduleRunner(
            context,
            sessions,
            templates,
            callers,
            require_writable,
            lease=scheduling.lease,
        ),
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
        planned_stops=planned_stops,
    )
