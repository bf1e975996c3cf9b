"""The manager: builds, starts and stops the services of every package."""

from __future__ import annotations

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.db.database import Database
from bai_services.db.scheduling.overflow import OverflowStore
from bai_services.db.sessions.store import SessionStore

from .accounts.keypair_secrets import KeypairSecrets
from .accounts.services import account_services
from .accounts.sign_outs import SignOuts
from .apps.session_apps import SessionApps
from .apps.shares import AppShares
from .audit import Audit
from .audit_chain import AuditChain
from .clock import Clock, monotonic_of, utcnow
from .cluster.heartbeat_times import HeartbeatTimes
from .cluster.services import cluster_services
from .context import ManagerContext
from .dashboard import Dashboards
from .drain import Drain
from .events import Events, Feed
from .folders.services import folder_services
from .health import HealthCheck
from .hub.client import Hub
from .hub.services import server_services
from .imports.services import import_services
from .mail.mails import Mails
from .metrics import Metrics
from .metrics_endpoint import MetricsEndpoint
from .models.services import model_services
from .notifications.services import notification_services
from .operations.read_only import ReadOnlyPeriods
from .operations.services import operation_services
from .operations.system import System
from .pipelines.services import pipeline_services
from .scheduling.advance_reservations import AdvanceReservations
from .scheduling.overflow_rules import OverflowRules
from .scheduling.reservation_delays import ReservationForecast
from .scheduling.services import scheduling_services
from .serving.services import replica_launches, serving_services
from .sessions.lifecycle import Lifecycle
from .sessions.planned_stops import ReplicaDrain
from .sessions.services import session_services
from .settings import Settings
from .usage.services import usage_services


class Manager:
    """The services by package. Most request handlers call one method."""

    def __init__(self, settings: Settings, database: Database, clock: Clock = utcnow) -> None:
        self.settings = settings
        self.database = database
        self.clock = clock
        self.metrics = Metrics()
        self.hub = Hub(settings.hub_api_url, settings.hub_api_token)
        self.audit = Audit(database, clock)
        self.events = Events()
        self.feed = Feed(self.events, database)
        self.lifecycle = Lifecycle(SessionStore(database), self.events, clock)
        self.read_only = ReadOnlyPeriods(database, clock)
        context = ManagerContext(
            database=database,
            clock=clock,
            audit=self.audit,
            events=self.events,
            capacity_changed=self.capacity_changed,
            sign_outs_due=self.sign_outs_due,
            read_only=self.read_only,
        )
        self.mails = Mails(
            database,
            settings,
            clock,
            self.audit,
            self.metrics,
            lambda: self.scheduling.lease.hold(),
        )
        self.accounts = account_services(context, settings, self.hub, self.metrics, self.mails)
        self.operations = operation_services(context, settings, self.accounts)
        self.folders = folder_services(
            context, settings, self.accounts.projects, self.accounts.users
        )
        self.scheduling = scheduling_services(context, settings, self.lifecycle, self.metrics)
        self.reservations = AdvanceReservations(
            context, self.accounts.projects, lease=self.scheduling.lease
        )
        self.audit_chain = AuditChain(database, clock, self.scheduling.lease, settings.audit_days)
        self.sessions = session_services(
            context,
            settings,
            events=self.events,
            lifecycle=self.lifecycle,
            scheduling=self.scheduling,
            metrics=self.metrics,
            folders=self.folders.mounts,
            projects=self.accounts.projects,
            users=self.accounts.users,
            callers=self.accounts.callers,
            replicas=replica_launches(context, settings, lambda: self.serving.runner.wake()),
            drain_replica=self._drain_replica,
            require_writable=self.read_only.require_writable,
        )
        self.reservation_forecast = ReservationForecast(
            self.reservations, self.scheduling.scheduler, self.sessions.sessions, context.clock
        )
        self.serving = serving_services(
            context,
            settings,
            sessions=self.sessions.sessions,
            files=self.folders.files,
            usage=self.sessions.usage_sampling,
            lifecycle=self.lifecycle,
            callers=self.accounts.callers,
            lease=self.scheduling.lease,
            require_writable=self.read_only.require_writable,
        )
        suspensions, times = self.sessions.suspensions, HeartbeatTimes(monotonic_of(clock))
        self.scheduling.preemptions.prepare_stop = self._prepare_for_preemption
        self.scheduling.preemptions.cancel_stop = suspensions.cancel_preparation
        self.servers = server_services(
            context,
            self.hub,
            lifecycle=self.lifecycle,
            services=self.sessions,
            times=times,
            lease=self.scheduling.lease,
        )
        self.notifications = notification_services(
            context,
            settings,
            domains=self.accounts.domains,
            hosts=self.folders.storage_hosts,
            mails=self.mails,
            lease=self.scheduling.lease,
        )
        self.sessions.idle_judging.on_changed_ends = self.scheduling.scheduler.read_again
        self.sessions.idle_judging.on_final_warning = self.notifications.outbox.warn_of_stops
        self.usage = usage_services(
            context,
            self.accounts.projects,
            self.sessions.planned_stops,
            self.scheduling.lease,
        )
        self.cluster = cluster_services(
            context,
            settings,
            self.sessions,
            self.scheduling,
            self.accounts.projects,
            times=times,
            hosts=self.folders.storage_hosts,
        )
        self.overflow_rules = OverflowRules(
            context, OverflowStore(database), self.accounts.projects, self.cluster.resource_groups
        )
        self.models = model_services(
            context,
            settings,
            projects=self.accounts.projects,
            folders=self.folders,
            endpoints=self.serving.endpoints,
            options=self.sessions.options,
            presets=self.cluster.presets,
            lease=self.scheduling.lease,
        )
        self.pipelines = pipeline_services(
            context,
            sessions=self.sessions.sessions,
            setups=self.sessions.session_setups,
            options=self.sessions.options,
            folders=self.folders.vfolders,
            files=self.folders.files,
            lifecycle=self.lifecycle,
            callers=self.accounts.callers,
            projects=self.accounts.projects,
            lease=self.scheduling.lease,
            encryption=KeypairSecrets(settings.key),
            require_writable=self.read_only.require_writable,
        )
        self.imports = import_services(
            context,
            settings,
            callers=self.accounts.callers,
            folders=self.folders,
            lease=self.scheduling.lease,
        )
        self.dashboards = Dashboards(
            self.sessions.sessions, self.sessions.options, self.folders.quotas, self.cluster.agents
        )
        self.session_apps = SessionApps(database, self.sessions.sessions)
        self.app_shares = AppShares(context, settings, self.sessions.sessions)
        self.sign_outs = SignOuts(
            database, self.hub, self.accounts.token_revocations, self.sessions.sessions.stop
        )
        self.drain = Drain(self.scheduling.scheduler, self.servers.starter)
        self.health = HealthCheck(database, self.hub, self.scheduling.lease)
        self.system = System(database, self.health, clock)
        self.metrics_endpoint = MetricsEndpoint(
            database,
            self.metrics,
            clock,
            lease=self.scheduling.lease,
            wait_states=self.scheduling.wait_states,
            hosts=self.folders.storage_hosts.all,
        )
        self.lifecycle.listen(self.metrics.count_status_change)

    async def start(self) -> None:
        """Start all loops."""
        await self.folders.start()
        self.sign_outs.start()
        self.start_session_loops()
        self.cluster.agents.start()
        self.mails.start()
        self.scheduling.counter_audit.start()
        self.audit_chain.start()
        self.notifications.start()
        self.read_only.start()
        self.models.start()
        self.imports.runner.start()
        self.cluster.registry_scans.start()

    async def stop(self) -> None:
        """Stop the loops, wait for them, and close the connections to the Hub and the database."""
        await self.cluster.registry_scans.stop()
        await self.imports.runner.stop()
        await self.models.stop()
        await self.read_only.stop()
        await self.notifications.stop()
        await self.audit_chain.stop()
        await self.scheduling.counter_audit.stop()
        await self.mails.stop()
        await self.cluster.replays.stop()
        await self.cluster.agents.stop()
        await self.stop_session_loops()
        await self.sign_outs.stop()
        await self.folders.stop()
        self.cluster.swarm.close()
        await self.hub.close()
        await self.database.close()

    async def _drain_replica(self, session_id: str, reason: CodedText) -> ReplicaDrain | None:
        return await self.serving.runner.drain(session_id, reason)

    async def _prepare_for_preemption(self, session_id: str, seconds: float) -> None:
        """Let a replica finish its requests; let any other session save its state."""
        reason = TextTemplate.REPLICA_PREEMPTED.text()
        if await self.serving.runner.drain(session_id, reason) is None:
            await self.sessions.suspensions.prepare_for_preemption(session_id, seconds)

    def start_session_loops(self) -> None:
        """Start the loops that process sessions."""
        self.scheduling.scheduler.start()
        self.servers.starter.start()
        self.servers.reconciler.start()
        self.servers.lost_agents.start()
        self.sessions.deadlines.start()
        self.sessions.callbacks.start()
        self.sessions.usage_sampling.start()
        self.usage.aggregation.start()
        self.sessions.idle_judging.start()
        self.sessions.elastic.start()
        self.sessions.overflow.start()
        self.cluster.provisioning.start()
        self.reservations.start()
        self.scheduling.preemptions.start()
        self.sessions.schedule_runner.start()
        self.usage.budget_watch.start()
        self.sessions.stored_logs.start()
        self.sessions.suspensions.start()
        self.serving.runner.start()
        self.serving.trials.start()
        self.pipelines.start()

    async def stop_session_loops(self) -> None:
        """Stop the loops that process sessions, and wait for them."""
        await self.pipelines.stop()
        await self.serving.failures.close()
        await self.serving.trials.stop()
        await self.serving.runner.stop()
        await self.scheduling.preemptions.stop()
        await self.usage.budget_watch.stop()
        await self.sessions.schedule_runner.stop()
        await self.sessions.stored_logs.stop()
        await self.usage.aggregation.stop()
        await self.reservations.stop()
        await self.cluster.provisioning.stop()
        await self.sessions.overflow.stop()
        await self.sessions.elastic.stop()
        await self.sessions.suspensions.stop()
        await self.sessions.idle_judging.stop()
        await self.sessions.usage_sampling.stop()
        await self.sessions.callbacks.stop()
        await self.sessions.deadlines.stop()
        await self.servers.lost_agents.stop()
        await self.servers.reconciler.stop()
        await self.scheduling.scheduler.stop()
        await self.servers.starter.stop()
        await self.servers.servers.stop()

    def capacity_changed(self) -> None:
        """Request a scheduling pass that reads everything again.

        Call it after a change of limits, agents or resource groups.
        """
        self.scheduling.scheduler.capacity_changed()

    def sign_outs_due(self) -> None:
        """Wake the loops that sign out the users who are marked for sign-out."""
        self.sign_outs.wake()
