"""Sessions as containers of this machine's Docker engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker

from bai_services.core.errors import InvalidRequest, Unavailable

from ..engine import Engine, Prepared, Tell
from ..folders.kernel_folders import LOG_LIMIT_BYTES
from ..kernels import Kernel, Task
from ..machine import isolation_facts
from .calls import DockerCalls
from .container_usage import Meter
from .egress import Egress
from .images import Images
from .layers import Layers
from .networks import CLUSTER_PREFIX, Networks

log = logging.getLogger(__name__)

AGENT, SESSION, KERNEL = "bai.agent-id", "bai.session-id", "bai.kernel-id"
LOG_LINES = 20_000
CONTAINER = re.compile(r"[0-9a-f]{64}")
RUNNING = frozenset({"running", "paused", "restarting"})
# Created but not started yet: the spawner is about to start it, so it is neither ended nor stray.
BEGINNING = frozenset({"created"})
GONE = frozenset({404, 409})
UNUSED_NETWORK_SECONDS = 3600


class DockerEngine(Engine):
    """Containers that the spawner starts, found by the label with this agent's id."""

    name = "docker"

    def __init__(
        self,
        agent_id: str,
        calls: DockerCalls,
        networks: Networks,
        egress: Egress,
        layers: Layers,
        *,
        endpoint: str,
        stop_grace_seconds: float,
    ) -> None:
        """``endpoint`` is the engine's URL for the Hub; ``calls`` has the agent's own."""
        self.endpoint = endpoint
        self._agent_id = agent_id
        self._calls = calls
        self._networks = networks
        self._egress = egress
        self._layers = layers
        # Names of the networks with rules in force; None: the rules must be set again.
        self._restricted: frozenset[str] | None = None
        self._restricting = asyncio.Lock()
        # Our containers on networks that span several machines.
        self._spread: frozenset[str] = frozenset()
        self._images = Images(calls)
        self._meter = Meter()
        self._session_of: dict[str, str] = {}
        self._stop_grace_seconds = stop_grace_seconds

    async def facts(self) -> dict[str, Any]:
        facts = isolation_facts(self.name)
        try:
            version = await self._calls.run("look", lambda client: client.version())
            # Repeated without cause from time to time: somebody may have flushed the machine's
            # rules.
            await self._restrict()
        except (Unavailable, docker.errors.APIError) as error:
            return {**facts, "notices": [str(error)]}
        egress = self._egress.facts()
        notices = [*facts["notices"], *egress.get("notices", ())]
        versions = {"docker": version.get("Version"), "docker_api": version.get("ApiVersion")}
        return {**facts, **versions, **egress, "notices": notices}

    async def observe(self) -> list[Kernel] | None:
        try:
            found = await self._calls.run("look", self._list)
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("containers cannot be listed: %s", error)
            # An engine that restarts resets the machine's rules.
            self._restricted = None
            return None
        await self._follow(found)
        kernels = await asyncio.gather(*(self._kernel(container) for container in found))
        self._session_of = {kernel.container_id: kernel.session_id for kernel in kernels}
        self._meter.forget(kernel.container_id for kernel in kernels)
        self._layers.forget(kernel.container_id for kernel in kernels)
        return list(kernels)

    async def prepare(self, task: Task, tell: Tell) -> Prepared:
        if not task.image:
            raise InvalidRequest("a session of a Docker resource group needs an image")
        network = asyncio.create_task(self._network_of(task))
        try:
            await self._images.ensure(task.image, tell)
            limit = await self._layers.limit_for(task.image)
            return Prepared(await network, task.uid, task.gid, layer_limit_bytes=limit)
        except docker.errors.APIError as error:
            raise Unavailable(f"the Docker engine refused: {error.explanation}") from error
        finally:
            # Started in parallel with the image; if that failed, nothing else waits for it.
            network.cancel()
            await asyncio.gather(network, return_exceptions=True)

    async def _network_of(self, task: Task) -> str:
        if task.cluster is None:
            name = await self._networks.ensure(task.user)
        else:
            name = await self._networks.ensure_cluster(task.cluster, task.user)
        if self._restricted is None or name not in self._restricted:
            await self._restrict()
        return name

    async def _restrict(self) -> None:
        """Set the rules for the current networks."""
        # One at a time: an older state of the networks must not replace a newer one.
        async with self._restricting:
            attached = await self._networks.attached(self._spread)
            await self._egress.apply(attached.sources)
            self._restricted = attached.names

    async def _follow(self, containers: Sequence[Mapping[str, Any]]) -> None:
        """Set the rules again if the engine was unavailable or containers have come or gone.

        Networks that span several machines have no bridge of their own here: their containers are
        identified by their addresses on a shared bridge, which they have only while running.
        """
        spread = frozenset(
            str(container["Id"])
            for container in containers
            for name in container.get("NetworkSettings", {}).get("Networks", {})
            if name.startswith(CLUSTER_PREFIX) and name not in (self._restricted or ())
        )
        if self._restricted is not None and spread == self._spread:
            return
        self._spread = spread
        try:
            await self._restrict()
        except (Unavailable, docker.errors.APIError) as error:
            self._restricted = None
            log.warning("the egress rules cannot be checked: %s", error)

    async def writable(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        return await self._layers.writable(kernel.container_id)

    def layer_limit(self) -> str:
        return self._layers.level

    def allow_url(self, url: str) -> None:
        if self._egress.allow_url(url):
            self._restricted = None

    async def remove(self, task: Task) -> None:
        filters = self._filters(task)

        def find(client: docker.APIClient) -> list[str]:
            return [c["Id"] for c in client.containers(all=True, filters=filters)]

        try:
            for container_id in await self._calls.run("look", find):
                await self._calls.run("change", _remover(container_id, self._stop_grace_seconds))
        except docker.errors.APIError as error:
            raise Unavailable(f"the Docker engine refused: {error.explanation}") from error

    async def log(self, task: Task) -> str | None:
        filters = self._filters(task)

        def read(client: docker.APIClient) -> str | None:
            for container in client.containers(all=True, filters=filters):
                data: bytes = client.logs(container["Id"], tail=LOG_LINES, timestamps=True)
                return data[-LOG_LIMIT_BYTES:].decode(errors="replace")
            return None

        try:
            return await self._calls.run("look", read)
        except docker.errors.APIError as error:
            raise Unavailable(f"the Docker engine refused: {error.explanation}") from error

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        containers = await asyncio.to_thread(_containers_of, pids)
        known = self._session_of
        return {pid: known[one] for pid, one in containers.items() if one in known}

    async def images(self) -> Sequence[str]:
        return await self._images.names()

    async def tidy(self) -> None:
        for name in await self._networks.tidy(UNUSED_NETWORK_SECONDS):
            log.info("network %s removed: nobody has been on it for an hour", name)

    async def close(self) -> None:
        await self._images.close()
        # Rules stay while sessions run; the next agent process takes them over.
        with contextlib.suppress(Unavailable, docker.errors.APIError):
            if not await self._calls.run("look", self._list):
                await self._egress.withdraw()
        self._calls.close()

    def _filters(self, task: Task) -> dict[str, list[str]]:
        """Return the filters that find the container of one kernel."""
        labels = {AGENT: self._agent_id, SESSION: task.session_id, KERNEL: task.kernel_id}
        return {"label": [f"{name}={value}" for name, value in labels.items()]}

    def _list(self, client: docker.APIClient) -> list[Mapping[str, Any]]:
        filters = {"label": f"{AGENT}={self._agent_id}"}
        found: list[Mapping[str, Any]] = client.containers(all=True, filters=filters)
        return [c for c in found if c["Labels"].get(SESSION) and c["Labels"].get(KERNEL)]

    async def _kernel(self, container: Mapping[str, Any]) -> Kernel:
        container_id, labels = str(container["Id"]), container["Labels"]
        is_running = container["State"] in RUNNING | BEGINNING
        exit_code, usage = None, None
        if container["State"] in RUNNING:
            usage = await self._usage(container_id)
        elif not is_running:
            exit_code = await self._exit_code(container_id)
        return Kernel(
            kernel_id=labels[KERNEL],
            session_id=labels[SESSION],
            container_id=container_id,
            is_running=is_running,
            exit_code=exit_code,
            usage=usage,
        )

    async def _usage(self, container_id: str) -> Mapping[str, Any] | None:
        def sample(client: docker.APIClient) -> Mapping[str, Any]:
            # one_shot: otherwise Docker waits a second for another sample.
            stats: Mapping[str, Any] = client.stats(container_id, stream=False, one_shot=True)
            return stats

        try:
            return self._meter.read(container_id, await self._calls.run("look", sample))
        except (Unavailable, docker.errors.APIError):
            return None

    async def _exit_code(self, container_id: str) -> int | None:
        try:
            facts = await self._calls.run("look", lambda c: c.inspect_container(container_id))
        except (Unavailable, docker.errors.APIError):
            return None
        return int(facts["State"]["ExitCode"])


def _containers_of(pids: Collection[int]) -> dict[int, str]:
    """Return the container of each process, by its cgroup, which users cannot change."""
    found = {}
    for pid in pids:
        try:
            match = CONTAINER.search(Path(f"/proc/{pid}/cgroup").read_text())
        except OSError:
            continue
        if match is not None:
            found[pid] = match[0]
    return found


def _remover(container_id: str, grace_seconds: float) -> Callable[[docker.APIClient], None]:
    def remove(client: docker.APIClient) -> None:
        try:
            client.stop(container_id, timeout=round(grace_seconds))
            client.remove_container(container_id, force=True, v=True)
        except docker.errors.APIError as error:
            # It is gone, or is being removed by somebody else.
            if error.status_code not in GONE:
                raise

    return remove
