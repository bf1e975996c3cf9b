"""Build the services that start, stop and reconcile Hub servers."""

from __future__ import annotations

from dataclasses import dataclass

from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.store import SessionStore

from ..context import ManagerContext
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.sessions import Sessions
from .client import Hub
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
    session_tokens: SessionTokens


def server_services(
    context: ManagerContext, hub: Hub, *, lifecycle: Lifecycle, sessions: Sessions, lease: Lease
) -> ServerServices:
    """Build the services and pass them their dependencies."""
    database, clock = context.database, context.clock
    store, kernels = SessionStore(database), KernelStore(database)
    servers = HubServers(hub, store, lifecycle)
    starter = Starter(store, kernels, servers, lifecycle, clock, lease=lease)
    return ServerServices(
        servers=servers,
        starter=starter,
        reconciler=Reconciler(
            store,
            kernels,
            sessions=sessions,
            servers=servers,
            starter=starter,
            lifecycle=lifecycle,
            clock=clock,
            lease=lease,
        ),
        session_tokens=SessionTokens(context, hub, sessions),
    )
