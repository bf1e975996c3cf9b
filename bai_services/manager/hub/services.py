"""Build the services that start, stop and reconcile Hub servers."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.lost_agents import LostAgentStore
from bai_services.db.sessions.store import SessionStore

from ..cluster.heartbeat_times import HeartbeatTimes
from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.services import SessionServices
from .client import Hub
from .lost_agents import LostAgents
from .opened_sessions import OpenedSessions
from .reconciler import Reconciler
from .servers import HubServers
from .session_tokens import SessionTokens
from .starter import Starter


@dataclass(frozen=True, slots=True)
class ServerServices:
    """Services for the Hub servers of sessions and for tokens that open them."""

    servers: HubServers
    starter: Starter
    reconciler: Reconciler
    lost_agents: LostAgents
    session_tokens: SessionTokens
    opened_sessions: OpenedSessions


def server_services(
    context: ManagerContext,
    hub: Hub,
    *,
    lifecycle: Lifecycle,
    services: SessionServices,
    times: HeartbeatTimes,
    lease: Lease,
) -> ServerServices:
    """Build the services and pass them their dependencies."""
    database, clock, sessions = context.database, context.clock, services.sessions
    store, kernels = SessionStore(database), KernelStore(database)
    servers = HubServers(hub, store, lifecycle)
    starter = Starter(store, kernels, servers, lifecycle, clock, lease=lease)
    return ServerServices(
        servers=servers,
        starter=starter,
        reconciler=Reconciler(
            store,
            sessions=sessions,
            servers=servers,
            starter=starter,
            lifecycle=lifecycle,
            clock=clock,
            lease=lease,
        ),
        lost_agents=LostAgents(
            LostAgentStore(database),
            store,
            lost=services.lost_kernels,
            kernels=services.kernels,
            servers=servers,
            lifecycle=lifecycle,
            times=times,
            clock=clock,
            lease=lease,
        ),
        session_tokens=SessionTokens(context, hub, sessions),
        opened_sessions=OpenedSessions(context, servers, sessions),
    )
