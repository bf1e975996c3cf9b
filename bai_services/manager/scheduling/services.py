"""Build the scheduling services."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.open_work import OpenWorkStore
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.preemption import PreemptionStore
from bai_services.db.scheduling.preemption_stops import VictimStops
from bai_services.db.scheduling.queue import QueueStore
from bai_services.db.scheduling.usage_buckets import UsageBucketStore
from bai_services.db.sessions.store import SessionStore

from ..context import ManagerContext
from ..metrics import Metrics
from ..open_work import OpenWork
from ..preemption.preemptions import Preemptions
from ..sessions.lifecycle import Lifecycle
from ..settings import Settings
from .counter_audit import CounterAudit
from .fair_usage import FairUsage
from .jit_warmup import JitWarmup
from .lease import Lease
from .scheduler import Scheduler
from .wait_states import WaitStates


@dataclass(frozen=True, slots=True)
class SchedulingServices:
    """The scheduler with its lease, JIT warm-up and wait states, and the counter audit."""

    lease: Lease
    jit_warmup: JitWarmup
    wait_states: WaitStates
    scheduler: Scheduler
    counter_audit: CounterAudit
    preemptions: Preemptions


def scheduling_services(
    context: ManagerContext, settings: Settings, lifecycle: Lifecycle, metrics: Metrics
) -> SchedulingServices:
    """Build the services and pass them their dependencies."""
    database, clock = context.database, context.clock
    queue = QueueStore(database)
    open_work = OpenWork(OpenWorkStore(database))
    lease = Lease(LeaseStore(database), clock, settings.lease_seconds, open_work=open_work)
    jit_warmup = JitWarmup()
    wait_states = WaitStates(queue, lifecycle)
    preemptions = Preemptions(
        PreemptionStore(database),
        VictimStops(database),
        SessionStore(database),
        lifecycle,
        lease,
        context.audit,
        clock,
    )
    return SchedulingServices(
        lease=lease,
        jit_warmup=jit_warmup,
        wait_states=wait_states,
        scheduler=Scheduler(
            queue,
            SessionStore(database),
            lease,
            FairUsage(UsageBucketStore(database), lease, clock),
            lifecycle,
            wait_states,
            clock,
            jit_warmup=jit_warmup,
            preemptions=preemptions,
            metrics=metrics,
        ),
        counter_audit=CounterAudit(AllocationStore(database), metrics, clock),
        preemptions=preemptions,
    )
