"""Composition and start order of everything that makes sessions run."""

from __future__ import annotations

from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.queue import QueueStore
from bai_services.db.scheduling.usage_buckets import UsageBucketStore
from bai_services.db.sessions.callbacks import CallbackStore
from bai_services.db.sessions.deadlines import DeadlineStore
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.time_limits import TimeLimitStore

from .accounts.keypair_secrets import KeypairSecrets
from .context import ManagerContext
from .events import Events, Feed
from .hub.client import Hub
from .hub.reconciler import Reconciler
from .hub.servers import HubServers
from .hub.starter import Starter
from .scheduling.admission_checks import FittingAgents
from .scheduling.fair_usage import FairUsage
from .scheduling.jit_warmup import JitWarmup
from .scheduling.lease import Lease
from .scheduling.scheduler import Scheduler
from .scheduling.wait_states import WaitStates
from .scheduling.why import StartExplanations
from .sessions.activity import SessionActivity
from .sessions.callback_calls import CallbackCalls
from .sessions.callbacks import Callbacks
from .sessions.deadlines import Deadlines
from .sessions.kernels import Kernels
from .sessions.launch import Launch, LaunchPlans
from .sessions.lifecycle import Lifecycle
from .sessions.lifetimes import Lifetimes
from .sessions.requests.options import Options
from .sessions.requests.requests import Folders, Requests
from .sessions.requests.secret_environ import SecretEnviron
from .sessions.sessions import Ledger, Sessions
from .settings import Settings


class SessionParts:
    """The use cases and loops of sessions; each is a public attribute."""

    def __init__(
        self, context: ManagerContext, settings: Settings, hub: Hub, folders: Folders
    ) -> None:
        database, clock = context.database, context.clock
        store, kernel_store = SessionStore(database), KernelStore(database)
        request_store = RequestStore(database)
        self.events = Events()
        self.feed = Feed(self.events, context.database)
        self.lifecycle = Lifecycle(store, self.events, clock)
        secret_environ = SecretEnviron(settings.key)
        plans = LaunchPlans(kernel_store, folders, secret_environ)
        dependencies = DependencyStore(database)
        self.jit_warmup = JitWarmup()
        fitting = FittingAgents(request_store, self.jit_warmup)
        requests = Requests(
            request_store, folders, clock, settings.callback_reach, fitting, secret_environ
        )
        self.kernels = Kernels(kernel_store, store, self.lifecycle, plans, clock)
        queue = QueueStore(database)
        states = WaitStates(queue, self.lifecycle)
        self.sessions = Sessions(
            store,
            requests,
            self.lifecycle,
            self.kernels,
            dependencies,
            states,
            (self.events, settings, clock, context.audit),
        )
        self.lifetimes = Lifetimes(
            self.sessions, (TimeLimitStore(database), store), self.lifecycle, context.audit
        )
        self.uses = SessionActivity(
            self.sessions, (TimeLimitStore(database), store), clock, context.audit
        )
        self.options = Options(request_store, requests, folders, self.jit_warmup)
        self.launch = Launch(store, kernel_store, plans, self.lifecycle, clock)
        self.ledger = Ledger(AllocationStore(database))
        lease = Lease(LeaseStore(database), clock, settings.lease_seconds)
        usage = FairUsage(UsageBucketStore(database), lease, clock)
        self.scheduler = Scheduler(
            queue, store, lease, usage, self.lifecycle, states, clock, jit_warmup=self.jit_warmup
        )
        self.whys = StartExplanations(self.sessions, self.scheduler, request_store)
        self.deadlines = Deadlines(
            DeadlineStore(database), dependencies, self.lifecycle, clock, lease=lease
        )
        self.callbacks = Callbacks(
            CallbackStore(database),
            CallbackCalls(settings.callback_reach),
            KeypairSecrets(settings.key),
            self.lifecycle,
            clock,
            lease=lease,
        )
        self.hub_servers = HubServers(hub, store, self.lifecycle)
        self.starter = Starter(
            store, kernel_store, self.hub_servers, self.lifecycle, clock, lease=lease
        )
        self.reconciler = Reconciler(
            store,
            kernel_store,
            (self.sessions, self.hub_servers, self.starter, self.lifecycle),
            clock,
            lease=lease,
        )

    def start(self) -> None:
        """Start the loops; all their state is in the database."""
        self.scheduler.start()
        self.starter.start()
        self.reconciler.start()
        self.deadlines.start()
        self.callbacks.start()

    async def stop(self) -> None:
        await self.callbacks.stop()
        await self.deadlines.stop()
        await self.reconciler.stop()
        await self.scheduler.stop()
        await self.starter.stop()
        await self.hub_servers.stop()
