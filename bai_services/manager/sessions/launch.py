"""Operations that the Hub's spawner calls: fetch launch plans, report start and end of sessions."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.cluster.image_labels import ON_PREEMPT, PREFIX, parse_labels
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.errors import Conflict, NotFound, Unavailable
from bai_services.core.folders.vfolders import Permission
from bai_services.core.resources import CPU
from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.end_reason import SessionEnd
from bai_services.core.sessions.launch_plan import Injection, LaunchPlan, Mount
from bai_services.core.sessions.lifecycle import (
    ENDED,
    SessionType,
    Status,
)
from bai_services.core.sessions.setup import SETUP_FILE_VARIABLE
from bai_services.core.sessions.spec import STORED_OPTIONS, VARIABLES
from bai_services.db.sessions.kernels import KernelStore, LaunchFacts
from bai_services.db.sessions.rows import SessionKernels, SessionRow
from bai_services.db.sessions.store import SessionStore

from ..accounts import authorizer
from ..clock import Clock
from .batch import check_first_launch, command_of
from .ends import SessionEnds
from .kernel_group import environ_of, new_cluster_key, sub_plans
from .lifecycle import Lifecycle
from .replica_launch import ReplicaLaunch
from .requests.requests import Folders
from .requests.secret_environ import SecretEnviron, secret_names

# Variables that set the number of threads of numerical libraries. Without them, the libraries use
# all cores of the machine.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# User id and group id of a session's processes if the manager runs as root and the account sets no
# ids.
DEFAULT_UID = 1000
DEFAULT_GID = 1000
MAX_REASON_CHARACTERS = 1000


class LaunchPlans:
    """Builds launch plans from the database."""

    def __init__(
        self,
        kernels: KernelStore,
        vfolders: Folders,
        secret_environ: SecretEnviron,
        replicas: ReplicaLaunch,
    ) -> None:
        self._replicas = replicas
        self._secret_environ = secret_environ
        self._kernels = kernels
        self._vfolders = vfolders

    async def facts_of(self, session_ids: Sequence[str]) -> dict[str, LaunchFacts]:
        """Return the agents, images and users of sessions; those without an agent are absent."""
        return await self._kernels.launch_facts(session_ids)

    async def user_ids(self, session_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the numeric user id and group id of each session, by session id."""
        ids_by_session = await self._kernels.user_ids(session_ids) if session_ids else {}
        return {session_id: _run_as(*ids) for session_id, ids in ids_by_session.items()}

    async def mounts_of(self, row: SessionRow) -> list[Mount]:
        """Return the mounts of a session with their source paths."""
        return await self._vfolders.sources(row.owner_id, row.mounts)

    async def mount_notices(self, row: SessionRow) -> list[str]:
        """Return notices for the owner about the mounted folders."""
        return await self._vfolders.notices(row.owner_id, row.mounts)

    async def plan(self, view: SessionKernels, facts: LaunchFacts | None) -> LaunchPlan:
        """Return the launch plan of a session (format: docs/protocols.md); ``facts``: see
        ``facts_of``.

        Raises
        ------
        Conflict
            If the session has no agent.
        Unavailable
            If the agent of a kernel is not alive.
        """
        row, kernel = view.row, view.kernels[0]
        if facts is None:
            raise Conflict(f"session {row.id} has no agent yet", session_id=row.id)
        if facts.agent_status != AgentStatus.ALIVE:
            raise Unavailable(
                f"agent {facts.agent_id} is not responding; the session starts when the agent is "
                "back",
                session_id=row.id,
                agent=facts.agent_id,
            )
        uid, gid = _run_as(facts.uid, facts.gid)
        labels = {
            "session-id": row.id,
            "kernel-id": kernel.id,
            "agent-id": facts.agent_id,
            "owner": row.owner,
        }
        injection = Injection.from_json(kernel.injection or {})
        plan = LaunchPlan(
            session_id=row.id,
            kernel_id=kernel.id,
            name=row.name,
            user=row.hub_user,
            server=row.hub_server,
            engine=facts.engine,
            endpoint=facts.endpoint,
            agent_id=facts.agent_id,
            image=row.image,
            command=tuple(command_of(row) or ()),
            uid=uid,
            gid=gid,
            hostname=kernel.hostname,
            slots=dict(row.requested_slots),
            shared_memory_bytes=row.shared_memory_bytes,
            # The agent performs the subpath mounts; they are in ``injection``.
            mounts=tuple(m for m in await self.mounts_of(row) if not m.subpath),
            environ={
                **_environ(row, facts),
                **self._own_environ(row, injection),
                **_session_environ(row, kernel.id, facts),
                **environ_of(view, kernel),
                **await self._replica_environ(row),
            },
            injection=injection,
            labels={f"bai.{name}": value for name, value in labels.items()},
            is_superadmin=facts.role == Role.SUPERADMIN,
        )
        if len(view.kernels) == 1:
            return plan
        plan = replace(plan, cluster_key=new_cluster_key(row.id))
        subs = sub_plans(view, plan, await self._kernels.kernel_agents(row.id))
        return replace(plan, subs=subs)

    async def _replica_environ(self, row: SessionRow) -> Mapping[str, str]:
        if row.type != SessionType.INFERENCE:
            return {}
        return await self._replicas.environ(row.id)

    def _own_environ(self, row: SessionRow, injection: Injection) -> dict[str, str]:
        """Return the variables that the session requested.

        Secret variables are left out if the agent has written them to the setup file: everyone who
        may inspect a container can read its environment.
        """
        environ = self._secret_environ.decrypt(row.environ)
        hidden = secret_names(row.environ) if SETUP_FILE_VARIABLE in injection.environ else ()
        return {name: value for name, value in environ.items() if name not in hidden}


class Launch:
    """Operations on sessions for the Hub's spawner; only the Hub may call them."""

    def __init__(
        self,
        sessions: SessionStore,
        kernels: KernelStore,
        plans: LaunchPlans,
        lifecycle: Lifecycle,
        clock: Clock,
        *,
        ends: SessionEnds,
        replicas: ReplicaLaunch,
    ) -> None:
        self._replicas = replicas
        self._ends = ends
        self._sessions = sessions
        self._kernels = kernels
        self._plans = plans
        self._lifecycle = lifecycle
        self._clock = clock

    async def launch(self, caller: Caller, session_id: str, user: str, server: str) -> LaunchPlan:
        """Return the launch plan of a PREPARED session, or of a RUNNING session with a crashed
        server. For a RUNNING session that its agent has started, return the plan of a server that
        is attached to it.

        Raises
        ------
        NotFound
            If the session does not exist or belongs to another user or server.
        Conflict
            If the session has another status, or is a batch session that is already running as a
            server of the Hub.
        Unavailable
            If the agent of a kernel is not alive.
        """
        authorizer.require(caller, "session.launch")
        view = await self._sessions.with_kernels(session_id)
        row = view.row
        is_match = hmac.compare_digest(row.hub_user, user) and hmac.compare_digest(
            row.hub_server, server
        )
        if not is_match:
            # Same message as for a missing session, so that guessing ids reveals nothing.
            raise NotFound(f"there is no session {session_id}", session=session_id)
        if row.started_by == BY_AGENT:
            return await self._attach_plan(view)
        check_first_launch(view)
        plan = None
        if row.status not in ENDED:
            facts = await self._plans.facts_of([row.id])
            plan = await self._plans.plan(view, facts.get(row.id))
        if plan is None or not await self._kernels.mark_launched(session_id, self._clock()):
            status = (await self._sessions.find(session_id)).status
            raise Conflict(
                f"session {row.name} is {status} and cannot be started",
                session_id=session_id,
                status=status,
            )
        return plan

    async def _attach_plan(self, view: SessionKernels) -> LaunchPlan:
        """Return the plan of a server in the running kernel of a session without a Hub server."""
        row = view.row
        if row.status is not Status.RUNNING:
            raise Conflict(
                f"session {row.name} is {row.status}; its agent starts it, and it can be opened "
                "while it runs",
                session_id=row.id,
                status=row.status,
            )
        facts = await self._plans.facts_of([row.id])
        plan = await self._plans.plan(view, facts.get(row.id))
        return replace(plan, command=(), is_attached=True)

    async def started(
        self, caller: Caller, session_id: str, containers: Mapping[str, str], url: str = ""
    ) -> None:
        """Record that the session's server responds at ``url``.

        ``containers`` are container ids by hostname.

        The session becomes RUNNING only after the Hub has also reported the server ready.

        Raises
        ------
        NotFound
            If the session does not exist.
        Conflict
            If the session has ended or is ending; the caller must remove the containers.
        """
        authorizer.require(caller, "session.launch")
        row = await self._kernels.set_containers(session_id, containers)
        if row is None:
            raise NotFound(f"there is no session {session_id}", session=session_id)
        if row.status not in (Status.PREPARED, Status.RUNNING):
            raise Conflict(
                f"session {row.name} is {row.status}; its containers must be removed",
                session_id=session_id,
                status=row.status,
            )
        if row.type == SessionType.INFERENCE:
            await self._replicas.started(session_id, url)
        self._lifecycle.notify(row)

    async def exited(self, caller: Caller, session_id: str, end: SessionEnd) -> SessionRow:
        """Record that all containers of the session have ended; idempotent."""
        authorizer.require(caller, "session.launch")
        return await self._ends.record(session_id, end)

    async def leave_start_to_manager(self, caller: Caller, session_id: str) -> SessionRow:
        """Let the manager take over the start of a session that was created through the Hub."""
        authorizer.require(caller, "session.launch")
        row = await self._sessions.leave_start_to_manager(session_id)
        self._lifecycle.notify(row)
        return row


def _run_as(uid: int | None, gid: int | None) -> tuple[int, int]:
    """Return the user and group id of a session's processes ("Ownership" in docs/security.md)."""
    if os.geteuid() != 0:
        # Without root, the manager cannot change the owner of files, so all folders belong to its
        # user.
        return os.geteuid(), os.getegid()
    return DEFAULT_UID if uid is None else uid, DEFAULT_GID if gid is None else gid


def _environ(row: SessionRow, facts: LaunchFacts) -> dict[str, str]:
    """Return the environment variables that depend on the cores and the image of a session.

    The request can set other values, except for ``BAI_APPS`` and ``BAI_SERVICE_PORTS``.
    """
    cores = str(max(1, -(-row.requested_slots.get(CPU, 1000) // 1000)))
    labels = parse_labels(dict(facts.image_labels))
    environ = dict.fromkeys((*THREAD_VARIABLES, *labels.corecount_variables), cores)
    if hook := facts.image_labels.get(ON_PREEMPT):
        environ["BAI_ON_PREEMPT"] = str(hook)
    if labels.apps:
        # Offer only the apps that the image's labels declare, not every program in the image.
        environ["BAI_APPS"] = ",".join(labels.apps)
        environ["BAI_SERVICE_PORTS"] = facts.image_labels[PREFIX + "service-ports"]
    return environ


def _spec_environ(row: SessionRow) -> dict[str, str]:
    """Return the environment variables that show fields of the spec to the session."""
    values = {
        variable: row.options.get(name) if name in STORED_OPTIONS else getattr(row, name)
        for variable, name in VARIABLES.items()
    }
    return {variable: str(value) for variable, value in values.items() if value is not None}


def _session_environ(row: SessionRow, kernel_id: str, facts: LaunchFacts) -> dict[str, str]:
    return {
        **_spec_environ(row),
        "BAI_SESSION_ID": row.id,
        "BAI_KERNEL_ID": kernel_id,
        "BAI_AGENT_ID": facts.agent_id,
        # Remove the space if there is no digest: it is empty until an agent has reported the image.
        "BAI_IMAGE": f"{row.image} {facts.image_digest}".rstrip(),
        "BAI_OWNER": row.owner,
        "BAI_DOMAIN": row.domain,
        "BAI_RESTART_COUNT": str(row.restart_count),
        # The requested writable folders: apps store persistent data there by default.
        # The paths are separated by colons, which mount paths cannot contain.
        "BAI_FOLDERS": ":".join(
            mount["path"]
            for mount in row.mounts
            if mount["permission"] != Permission.RO and not mount.get("is_auto")
        ),
    }
