"""Docker engine: each kernel as a container on the Docker endpoint of its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import docker
from traitlets import Dict, Float, Integer, Unicode

from bai_services.core.coded_text import TextTemplate
from bai_services.core.folders.mounts import HOME
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import without_times

from . import cluster_files
from .base import Engine, EngineError, EngineUnreachable, Exit, Running, merged_environ, tail
from .docker_attached import AttachedServers
from .docker_calls import CallLimits, DockerCalls
from .docker_container import ContainerLimits, KernelContainer, container_name
from .seccomp import security_options

T = TypeVar("T")

POLL_INTERVAL_SECONDS = 0.05
KILL_TIMEOUT_SECONDS = 30
MAX_LOG_LINES = 20_000
NOT_FOUND = 404
CONFLICT = 409


class DockerEngine(Engine):
    """Run each kernel as an unprivileged container with the limits and network of its plan.

    DockerSpawner creates and starts the container (`KernelContainer`). The other methods differ
    from DockerSpawner's. `poll` distinguishes a failing daemon from a stopped session. `stop` does
    not block a thread. An ended container is kept until its log and exit code have been read.
    """

    name = "docker"

    threads = Integer(
        32, min=1, help="Maximum number of concurrent calls to one Docker endpoint."
    ).tag(config=True)

    calls_per_user = Integer(
        8,
        min=1,
        help="""
        Maximum number of concurrent calls to one Docker endpoint on behalf of one user; further
        calls wait. Keep it below `threads`, so that one user cannot occupy all threads.
        """,
    ).tag(config=True)

    call_timeout_seconds = Float(
        60,
        min=1,
        help="""
        Timeout in seconds of a call to Docker. A timeout does not end a running session, because
        it does not show that the container has stopped.
        """,
    ).tag(config=True)

    pids_limit = Integer(
        4096,
        min=-1,
        help="Maximum number of processes and threads of a container; -1: no limit.",
    ).tag(config=True)

    seccomp_profile = Unicode(
        help="""
        Seccomp profile of sessions. Empty: bai-hub's own, which denies `io_uring` and `AF_VSOCK`
        sockets. `engine`: pass no profile, so that Docker applies its own default, if any; needed
        if Docker has no seccomp support. Otherwise the path of a profile in Docker's JSON format on
        the Hub's machine.
        """
    ).tag(config=True)

    log_max_size = Unicode(
        "10m",
        help="""
        Maximum size of a container's log. When the log reaches it, Docker deletes the log and
        begins a new one.
        """,
    ).tag(config=True)

    port = Integer(
        8888, min=1024, max=65535, help="Port on which the server inside a container listens."
    ).tag(config=True)

    extra_hosts = Dict(
        Unicode(),
        default_value={"host.docker.internal": "host-gateway"},
        help="""
        Host names added to a container's /etc/hosts. The default maps `host.docker.internal` to the
        agent's machine, so that containers reach a Hub on that machine. If the Hub has a DNS name,
        set this to `{}`.
        """,
    ).tag(config=True)

    tls_folder = Unicode(
        help="""
        Folder with `ca.pem`, `cert.pem` and `key.pem` for endpoints that begin with `tcp://`.
        Empty: no TLS. No effect on `unix://` and `ssh://` endpoints.
        """
    ).tag(config=True)

    def __init__(self, shared: MutableMapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        shared = {} if shared is None else shared
        # The threads and clients are shared by all engines of the Hub.
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
            {**cluster_files.variables(plan), **merged_environ(plan, environ, own)},
            plan.command or command,
            self._calls,
            self._limits(),
            parent=self,
        )
        try:
            ip, port = await container.start()
        except (Exception, asyncio.CancelledError) as error:
            await self._remove(plan.endpoint, plan.user, container.object_name)
            if isinstance(error, docker.errors.APIError):
                raise _start_error(error, plan.image) from error
            raise
        running = Running(
            engine=self.name,
            session_id=plan.session_id,
            url=f"http://{ip}:{port}",
            owner=plan.user,
            endpoint=plan.endpoint,
            container_id=container.object_id,
            kernel_id=plan.kernel_id,
            hostname=plan.hostname,
        )
        if not ip:
            await self._raise_without_address(running)
        return running

    async def find(self, kernel: Running) -> Running | None:
        name = container_name(kernel.session_id, kernel.hostname)
        try:
            inspected = await self._run(
                kernel.endpoint, kernel.owner, lambda client: client.inspect_container(name)
            )
        except docker.errors.APIError as error:
            if error.status_code == NOT_FOUND:
                return None
            raise EngineUnreachable(f"the Docker engine failed: {error.explanation}") from error
        is_started = inspected["State"]["Status"] != "created"
        labels = inspected["Config"]["Labels"] or {}
        if not is_started or labels.get("bai.kernel-id") != kernel.kernel_id:
            return None
        return replace(kernel, container_id=inspected["Id"])

    async def attach(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        kernel = await self.find(Running.named(plan))
        if kernel is None or await self.poll(kernel) is not None:
            raise EngineError(f"the command of session {plan.name} has ended", reason="ended")
        try:
            return await self._attached.start(kernel, plan, environ, command)
        except docker.errors.APIError as error:
            raise EngineError(
                f"the Docker engine could not start a server in the container: {error.explanation}"
            ) from error

    async def poll_attached(self, running: Running) -> Exit | None:
        return await self._attached.poll(running)

    async def stop_attached(self, running: Running, now: bool = False) -> Exit:
        await self._attached.stop(running, 0.0 if now else self.stop_grace_seconds)
        return Exit(None, EndReason.STOPPED, TextTemplate.STOPPED.value)

    @property
    def _attached(self) -> AttachedServers:
        return AttachedServers(self._calls, self.port)

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
            inspected = await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.inspect_container(running.container_id),
            )
        except docker.errors.APIError as error:
            if error.status_code == NOT_FOUND:
                return Exit(None, EndReason.INTERRUPTED, TextTemplate.REMOVED.value)
            # An error of the daemon counts as unreachable, because the state of the container is
            # then unknown.
            raise EngineUnreachable(f"the Docker engine failed: {error.explanation}") from error
        state = inspected["State"]
        if state["Running"] or state["Status"] in ("created", "restarting", "paused"):
            return None
        return _exit_of(state)

    async def read_log(self, running: Running, max_bytes: int) -> str:
        try:
            data: bytes = await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.logs(
                    running.container_id, tail=MAX_LOG_LINES, timestamps=True
                ),
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
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        await self._kill(running, "SIGKILL")
        deadline = asyncio.get_running_loop().time() + KILL_TIMEOUT_SECONDS
        while (ended := await self.poll(running)) is None:
            if asyncio.get_running_loop().time() >= deadline:
                raise EngineUnreachable(
                    f"the container still runs {KILL_TIMEOUT_SECONDS} seconds after SIGKILL"
                )
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
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

    async def _kill(self, running: Running, signal: str) -> None:
        try:
            await self._run(
                running.endpoint,
                running.owner,
                lambda client: client.kill(running.container_id, signal),
            )
        except docker.errors.APIError as error:
            # 404 and 409 mean that the container has ended already.
            if error.status_code not in (NOT_FOUND, CONFLICT):
                raise EngineUnreachable(f"the Docker engine failed: {error.explanation}") from error

    async def _remove(self, endpoint: str, user: str, container: str) -> None:
        def remove(client: docker.APIClient) -> None:
            try:
                client.remove_container(container, force=True, v=True)
            except docker.errors.APIError as error:
                # 409: another removal is in progress.
                if error.status_code not in (NOT_FOUND, CONFLICT):
                    raise

        try:
            await self._run(endpoint, user, remove, True)
        except (docker.errors.APIError, EngineUnreachable) as error:
            # The agent finds the container by its label, and the manager requests its removal.
            self.log.warning("Container %s was not removed at %s: %s", container, endpoint, error)

    async def _raise_without_address(self, running: Running) -> None:
        """Remove a container that got no address, and raise an ``EngineError`` with the reason."""
        ended = await self.poll(running)
        lines = without_times(await self.read_log(running, 4096))
        await self.remove(running)
        if ended is None:
            raise EngineError("the container has no address on its network")
        raise EngineError(
            f"the container exited with code {ended.code} right after its start; its output:\n"
            f"{lines}",
            reason="exited-at-start",
        )


def _exit_of(state: Mapping[str, Any]) -> Exit:
    code = int(state["ExitCode"])
    if state.get("OOMKilled"):
        return Exit(code, EndReason.INTERRUPTED, TextTemplate.OUT_OF_MEMORY.value)
    return Exit(code)


def _start_error(error: docker.errors.APIError, image: str) -> EngineError:
    text = str(error.explanation or error)
    if error.status_code == NOT_FOUND and "image" in text.lower():
        return EngineError(
            f"the image {image} is not on the chosen machine", reason="image-missing"
        )
    if "no space left" in text.lower():
        return EngineError("the disk of the chosen machine is full", reason="storage-full")
    if "could not attach to network" in text.lower():
        text += (
            "; the network of a session on several machines can only be created by a Swarm manager "
            "that runs one of its kernels, but none of these machines is a manager: promote them "
            "(docker node promote)"
        )
    return EngineError(f"the Docker engine could not start the container: {text}")
