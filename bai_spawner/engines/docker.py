"""Sessions as containers of the Docker engine of the chosen agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import docker
from traitlets import Dict, Float, Integer, Unicode

from bai_services.core.folders.mounts import HOME
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import without_times

from .base import Engine, EngineError, EngineUnreachable, Exit, Running, merged_environ, tail
from .docker_calls import CallLimits, DockerCalls
from .docker_container import ContainerLimits, KernelContainer
from .seccomp import security_options

T = TypeVar("T")

STEP_SECONDS = 0.05
KILL_SECONDS = 30
LOG_LINES = 20_000
MISSING = 404
NAME_TAKEN = 409
SERVER_FAULT = 500


class DockerEngine(Engine):
    """Runs a session's image as a container: no privileges, the plan's limits and network.

    DockerSpawner creates and starts it (`KernelContainer`). This class replaces what DockerSpawner
    does wrong: `poll` does not take a failing daemon for a stopped session, `stop` blocks no
    thread, and an ended container keeps its log and its exit code until they are read.
    """

    name = "docker"

    threads = Integer(
        32, min=1, help="Threads per Docker endpoint for calls of Docker's client."
    ).tag(config=True)

    calls_per_user = Integer(
        8,
        min=1,
        help="""
        Calls of one user to one Docker endpoint at the same time; more of them wait. Keep it
        below `threads`, so that no user can take them all.
        """,
    ).tag(config=True)

    call_timeout_seconds = Float(
        60,
        min=1,
        help="""
        Seconds after which a call to Docker fails with a timeout. A running session keeps
        running: a silent engine says nothing about it.
        """,
    ).tag(config=True)

    pids_limit = Integer(
        4096,
        min=-1,
        help="Processes and threads that a session may have at once; -1 does not limit them.",
    ).tag(config=True)

    seccomp_profile = Unicode(
        help="""
        Seccomp profile of sessions: empty for bai-hub's own, which has no `io_uring` and no
        `AF_VSOCK` sockets; `engine` for the Docker engine's (needed where Docker has no seccomp);
        else the path of a profile in Docker's JSON format on the Hub's machine.
        """
    ).tag(config=True)

    log_max_size = Unicode(
        "10m", help="Size of a container's log at which Docker drops the older half."
    ).tag(config=True)

    port = Integer(
        8888, min=1024, max=65535, help="Port on which the server inside a container listens."
    ).tag(config=True)

    extra_hosts = Dict(
        Unicode(),
        default_value={"host.docker.internal": "host-gateway"},
        help="""
        Names that containers know beside the network's own. The default is the agent's machine,
        for a Hub that runs there; empty when the Hub has a name of its own.
        """,
    ).tag(config=True)

    tls_folder = Unicode(
        help="""
        Folder with `ca.pem`, `cert.pem` and `key.pem` for endpoints that begin with `tcp://`.
        Empty speaks to them without TLS. No effect on unix and ssh endpoints.
        """
    ).tag(config=True)

    def __init__(self, shared: MutableMapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        shared = {} if shared is None else shared
        # Shared by all engines of the Hub: threads and clients.
        if "docker" not in shared:
            limits = CallLimits(self.threads, self.calls_per_user, self.call_timeout_seconds)
            shared["docker"] = DockerCalls(limits, self.tls_folder)
        self._calls: DockerCalls = shared["docker"]

    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        return "0.0.0.0", self.port

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        own = {"HOME": HOME, "BAI_SESSION_ENGINE": self.name, "TINI_SUBREAPER": "1"}
        container = KernelContainer(
            plan,
            merged_environ(plan, environ, own),
            plan.command or command,
            self._calls,
            self._limits(),
            parent=self,
        )
        try:
            ip, _ = await container.start()
        except (Exception, asyncio.CancelledError) as error:
            await self._remove(plan.endpoint, plan.user, container.object_name)
            if isinstance(error, docker.errors.APIError):
                raise _start_error(error, plan.image) from error
            raise
        running = Running(
            engine=self.name,
            session_id=plan.session_id,
            url=f"http://{ip}:{self.port}",
            owner=plan.user,
            endpoint=plan.endpoint,
            container_id=container.object_id,
            kernel_id=plan.kernel_id,
            hostname=plan.hostname,
        )
        if not ip:
            await self._fail_without_address(running)
        return running

    def _limits(self) -> ContainerLimits:
        try:
            options = security_options(self.seccomp_profile)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"DockerEngine.seccomp_profile={self.seccomp_profile!r} is not a readable seccomp "
                f"profile: {error}"
            ) from error
        return ContainerLimits(
            self.pids_limit, self.log_max_size, self.port, self.extra_hosts, options
        )

    async def poll(self, running: Running) -> Exit | None:
        try:
            facts = await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.inspect_container(running.container_id),
            )
        except docker.errors.APIError as error:
            if error.status_code == MISSING:
                return Exit(None, EndReason.INTERRUPTED, "removed from outside")
            # A daemon error says nothing about the container's state.
            raise EngineUnreachable(f"the Docker engine answered: {error.explanation}") from error
        state = facts["State"]
        if state["Running"] or state["Status"] in ("created", "restarting", "paused"):
            return None
        return _end_of(state)

    async def read_log(self, running: Running, max_bytes: int) -> str:
        try:
            data: bytes = await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.logs(running.container_id, tail=LOG_LINES, timestamps=True),
            )
        except (docker.errors.APIError, EngineUnreachable) as error:
            self.log.warning("The log of session %s is lost: %s", running.session_id, error)
            return ""
        return tail(data.decode(errors="replace"), max_bytes)

    async def stop(self, running: Running, now: bool = False) -> Exit:
        grace = 0.0 if now else self.stop_grace_seconds
        if grace:
            await self._kill(running, "SIGTERM")
        deadline = asyncio.get_running_loop().time() + grace
        while asyncio.get_running_loop().time() < deadline:
            ended = await self.poll(running)
            if ended is not None:
                return ended
            await asyncio.sleep(STEP_SECONDS)
        await self._kill(running, "SIGKILL")
        deadline = asyncio.get_running_loop().time() + KILL_SECONDS
        while (ended := await self.poll(running)) is None:
            if asyncio.get_running_loop().time() >= deadline:
                raise EngineUnreachable("the Docker engine does not end the container")
            await asyncio.sleep(STEP_SECONDS)
        return ended

    async def remove(self, running: Running) -> None:
        await self._remove(running.endpoint, running.owner, running.container_id)

    async def _run(
        self,
        endpoint: str,
        user: str,
        call: Callable[[docker.APIClient], T],
        shield: bool = False,
    ) -> T:
        return await self._calls.run(endpoint, user, call, shield)

    async def _kill(self, running: Running, number: str) -> None:
        try:
            await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.kill(running.container_id, number),
            )
        except docker.errors.APIError as error:
            # 404 and 409 mean that it has already ended.
            if error.status_code not in (MISSING, NAME_TAKEN):
                raise EngineUnreachable(
                    f"the Docker engine answered: {error.explanation}"
                ) from error

    async def _remove(self, endpoint: str, user: str, container: str) -> None:
        def remove(client: docker.APIClient) -> None:
            try:
                client.remove_container(container, force=True, v=True)
            except docker.errors.APIError as error:
                # 409: its removal is in progress.
                if error.status_code not in (MISSING, NAME_TAKEN):
                    raise

        try:
            await self._run(endpoint, user, remove, True)
        except (docker.errors.APIError, EngineUnreachable) as error:
            # The reconciler will find it by its label.
            self.log.warning("Container %s was not removed at %s: %s", container, endpoint, error)

    async def _fail_without_address(self, running: Running) -> None:
        ended = await self.poll(running)
        lines = without_times(await self.read_log(running, 4096))
        await self.remove(running)
        if ended is None:
            raise EngineError("the container has no address on its network")
        raise EngineError(
            f"the container {ended.reason} with code {ended.code} at once; it printed:\n{lines}",
            reason="exited-at-start",
        )


def _end_of(state: Mapping[str, Any]) -> Exit:
    code = int(state["ExitCode"])
    if state.get("OOMKilled"):
        text = "was killed for exceeding its memory limit"
        return Exit(code, EndReason.INTERRUPTED, text)
    return Exit(code)


def _start_error(error: docker.errors.APIError, image: str) -> EngineError:
    text = str(error.explanation or error)
    if error.status_code == MISSING and "image" in text.lower():
        return EngineError(
            f"the image {image} is not on the chosen machine", reason="image-missing"
        )
    if "no space left" in text.lower():
        return EngineError("the disk of the chosen machine is full", reason="storage-full")
    if "could not attach to network" in text.lower():
        text += (
            "; a network over several machines is made by a Swarm manager that has a kernel of the "
            "session, and none of these machines is one: promote them (docker node promote)"
        )
    return EngineError(f"the Docker engine refused to start the container: {text}")
