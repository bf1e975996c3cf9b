"""Docker engine: sessions are containers on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docker
import requests

from bai_services import tracing
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.image_store import PruneRequest, RegistryAuth
from bai_services.core.errors import InvalidRequest, NotFound, Unavailable
from bai_services.core.resources import CPU, MEM
from bai_services.core.sessions.resizing import memory_in_use

from ..engine import Engine, Prepared, ReportProgress
from ..folders.kernel_folders import LOG_LIMIT_BYTES
from ..kernels import Kernel, Task
from ..machine import detect_isolation
from .builds import remove_old_cache
from .calls import DockerCalls
from .commits import commit
from .container_usage import Meter, memory_bytes
from .egress import Egress
from .image_uses import ImageUses
from .images import Images
from .layers import Layers
from .networks import CLUSTER_PREFIX, CLUSTER_UNUSED_SECONDS, Networks
from .runtime import Runtime
from .sboms import read_sbom

log = logging.getLogger(__name__)

AGENT, SESSION, KERNEL = "bai.agent-id", "bai.session-id", "bai.kernel-id"
MAX_LOG_LINES = 20_000
CONTAINER = re.compile(r"[0-9a-f]{64}")
RUNNING = frozenset({"running", "paused", "restarting"})
# The spawner is about to start a container in this state, so the container counts as running.
CREATED = frozenset({"created"})
GONE_OR_BEING_REMOVED = frozenset({404, 409})
UNUSED_NETWORK_TIMEOUT_SECONDS = 3600
# Interval at which unused networks are removed while no subnet is free.
NETWORK_CLEANUP_SECONDS = 60


class DockerEngine(Engine):
    """Engine for containers that the spawner starts; they carry a label with this agent's id."""

    name = "docker"

    def __init__(
        self,
        agent_id: str,
        calls: DockerCalls,
        networks: Networks,
        egress: Egress,
        layers: Layers,
        image_uses: ImageUses,
        runtime: Runtime,
        *,
        endpoint: str,
        stop_grace_seconds: float,
        address: str = "",
        build_variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``endpoint`` is the engine's URL for the Hub; ``calls`` has the URL for the agent.

        ``address`` is this machine's address on which ports of sessions are published; empty: they
        are not published.
        """
        self.endpoint = endpoint
        self._address = address
        self._agent_id = agent_id
        self._calls = calls
        self._networks = networks
        self._egress = egress
        self._layers = layers
        # Names of the networks with active egress rules; None: the rules must be set again.
        self._networks_with_rules: frozenset[str] | None = None
        self._is_network_full = False
        self._next_network_cleanup = 0.0
        self._rules_lock = asyncio.Lock()
        # Ids of the agent's containers on overlay networks, which span several machines.
        self._overlay_containers: frozenset[str] = frozenset()
        self._images = Images(calls, image_uses)
        self._runtime = runtime
        self._meter = Meter()
        self._session_of: dict[str, str] = {}
        self._stop_grace_seconds = stop_grace_seconds
        self._build_variables = build_variables

    async def facts(self) -> dict[str, Any]:
        isolation = detect_isolation(self.name).isolation
        try:
            version = await self._calls.run("query", lambda client: client.version())
            # Set the rules again each time, because a reload of the firewall may have removed them.
            await self._apply_rules()
        except (Unavailable, docker.errors.APIError) as error:
            return {"isolation": isolation, "notices": [str(error)]}
        egress = self._egress.facts()
        versions = {"docker": version.get("Version"), "docker_api": version.get("ApiVersion")}
        notices = list(egress.get("notices", ()))
        return {"isolation": isolation, **versions, **egress, "notices": notices}

    async def observe(self) -> list[Kernel] | None:
        try:
            containers = await self._calls.run("query", self._list)
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("containers cannot be listed: %s", error)
            # Set the egress rules again later, because the engine may have restarted, which removes
            # them.
            self._networks_with_rules = None
            return None
        await self._refresh_rules(containers)
        kernels = await asyncio.gather(*(self._kernel(container) for container in containers))
        self._session_of = {kernel.container_id: kernel.session_id for kernel in kernels}
        self._meter.retain(kernel.container_id for kernel in kernels)
        self._layers.retain(kernel.container_id for kernel in kernels)
        return list(kernels)

    async def prepare(self, task: Task, report_progress: ReportProgress) -> Prepared:
        if not task.image:
            raise InvalidRequest("a session of a Docker resource group needs an image")
        network = asyncio.create_task(self._ensure_network(task))
        try:
            with tracing.step("image pull"):
                await self._images.ensure(task.image, report_progress, task.registry_auth)
            parts = await self._runtime.parts(task.image, task.uid, task.gid)
            limit = await self._layers.size_option(task.image)
            notices = parts.notices if parts is not None else ()
            return Prepared(
                network=await network,
                address=self._address,
                uid=task.uid,
                gid=task.gid,
                notices=notices,
                layer_limit_bytes=limit,
                parts=parts,
            )
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine rejected the request: {error.explanation}"
            ) from error
        finally:
            # The network is created while the image is pulled. If the pull has failed, cancel the
            # creation.
            network.cancel()
            await asyncio.gather(network, return_exceptions=True)

    async def _ensure_network(self, task: Task) -> str:
        if task.cluster is None:
            name = await self._networks.ensure(task.user)
        else:
            name = await self._networks.ensure_cluster(task.cluster, task.user)
        if self._networks_with_rules is None or name not in self._networks_with_rules:
            await self._apply_rules()
        return name

    async def _apply_rules(self) -> None:
        """Set the egress rules for the current networks."""
        # The lock prevents an older list of networks from overwriting a newer one.
        async with self._rules_lock:
            networks = await self._networks.session_networks(self._overlay_containers)
            await self._egress.apply(networks.sources)
            self._networks_with_rules = networks.names

    async def _refresh_rules(self, containers: Sequence[Mapping[str, Any]]) -> None:
        """Set the rules again if ``_networks_with_rules`` is None, or if the containers on overlay
        networks have changed.

        An overlay network has no separate bridge on this machine. Rules identify its containers by
        their addresses on a shared bridge. A container has an address only while it runs.
        """
        overlay_containers = frozenset(
            str(container["Id"])
            for container in containers
            for name in container.get("NetworkSettings", {}).get("Networks", {})
            if name.startswith(CLUSTER_PREFIX) and name not in (self._networks_with_rules or ())
        )
        if self._networks_with_rules is not None and overlay_containers == self._overlay_containers:
            return
        self._overlay_containers = overlay_containers
        try:
            await self._apply_rules()
        except (Unavailable, docker.errors.APIError) as error:
            self._networks_with_rules = None
            log.warning("the egress rules cannot be checked: %s", error)

    async def writable_layer(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        return await self._layers.writable_layer(kernel.container_id)

    def layer_limit(self) -> str:
        return self._layers.level

    def allow_url(self, url: str) -> None:
        if self._egress.allow_url(url):
            self._networks_with_rules = None

    async def stop(self, task: Task) -> None:
        await self._change_each(task, _stopper)

    async def remove(self, task: Task) -> None:
        await self._change_each(task, _remover)

    async def _change_each(
        self, task: Task, make: Callable[[str, float], Callable[[docker.APIClient], None]]
    ) -> None:
        filters = self._filters(task)

        def find(client: docker.APIClient) -> list[str]:
            return [c["Id"] for c in client.containers(all=True, filters=filters)]

        try:
            for container_id in await self._calls.run("query", find):
                await self._calls.run("change", make(container_id, self._stop_grace_seconds))
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine rejected the request: {error.explanation}"
            ) from error

    async def resize(self, task: Task) -> None:
        filters, slots = self._filters(task), task.slots

        def update(client: docker.APIClient) -> None:
            found = client.containers(filters=filters)
            if not found:
                raise NotFound(f"session {task.session_id} does not run on this machine")
            container_id = str(found[0]["Id"])
            if MEM in slots:
                # Read the usage first: with a limit below it, the operating system would kill
                # processes.
                stats = client.stats(container_id, stream=False, one_shot=True)
                used = memory_bytes(stats)
                if used > slots[MEM]:
                    raise memory_in_use(used, slots[MEM])
            set_limits(client, container_id, slots)

        try:
            await self._calls.run("change", update)
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine rejected the new limits: {error.explanation}"
            ) from error

    async def log(self, task: Task) -> str | None:
        filters = self._filters(task)

        def read(client: docker.APIClient) -> str | None:
            for container in client.containers(all=True, filters=filters):
                data: bytes = client.logs(container["Id"], tail=MAX_LOG_LINES, timestamps=True)
                return data[-LOG_LIMIT_BYTES:].decode(errors="replace")
            return None

        try:
            return await self._calls.run("query", read)
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine rejected the request: {error.explanation}"
            ) from error

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        containers = await asyncio.to_thread(_containers_of, pids)
        known = self._session_of
        return {pid: known[id_] for pid, id_ in containers.items() if id_ in known}

    async def images(self) -> Mapping[str, str]:
        return await self._images.digests()

    async def pull_image(
        self,
        name: str,
        digest: str,
        report_progress: ReportProgress,
        auth: RegistryAuth | None = None,
    ) -> Mapping[str, Any]:
        return await self._images.pull(name, digest, report_progress, auth)

    async def prune_images(self, request: PruneRequest) -> Sequence[Mapping[str, Any]]:
        return await self._images.prune(request)

    async def image_sbom(self, name: str) -> bytes:
        return await read_sbom(self._calls, name)

    async def commit(
        self, request: CommitRequest, report_progress: ReportProgress
    ) -> Mapping[str, Any]:
        # Record the use first: a commit can be cancelled when its image is already complete, and
        # only images with a recorded use can be discarded.
        await self._images.record_use(request.image)
        try:
            return await commit(
                self._calls,
                self._filters(request),
                request,
                report_progress,
                self._build_variables,
            )
        except BaseException:
            await self._images.forget(request.image)
            raise

    async def discard_image(self, name: str) -> None:
        await self._images.discard(name)

    async def is_network_full(self) -> bool:
        try:
            is_full = await self._networks.is_full()
            if is_full and time.monotonic() >= self._next_network_cleanup:
                self._next_network_cleanup = time.monotonic() + NETWORK_CLEANUP_SECONDS
                # The networks of sessions in preparation remain, because they were used within this
                # time.
                await self._remove_networks(CLUSTER_UNUSED_SECONDS)
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("networks cannot be listed: %s", error)
            return self._is_network_full
        self._is_network_full = is_full
        return is_full

    async def _remove_networks(self, unused_seconds: float) -> None:
        for name in await self._networks.remove_unused(unused_seconds):
            log.info("removed network %s, which had no container for a long time", name)

    async def remove_unused(self) -> None:
        await self._images.evict()
        await self._runtime.remove_unused()
        try:
            await self._calls.run("change", lambda client: remove_old_cache(client, AGENT))
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("the cache of builds cannot be cleaned up: %s", error)
        await self._remove_networks(UNUSED_NETWORK_TIMEOUT_SECONDS)

    async def close(self) -> None:
        await self._images.close()
        # Keep the rules while containers exist, because the next agent process takes the containers
        # over.
        with contextlib.suppress(Unavailable, docker.errors.APIError):
            if not await self._calls.run("query", self._list):
                await self._egress.remove_rules()
        self._calls.close()

    def _filters(self, task: Task | CommitRequest) -> dict[str, list[str]]:
        """Return the filters that find the container of one kernel."""
        labels = {AGENT: self._agent_id, SESSION: task.session_id, KERNEL: task.kernel_id}
        return {"label": [f"{name}={value}" for name, value in labels.items()]}

    def _list(self, client: docker.APIClient) -> list[Mapping[str, Any]]:
        filters = {"label": f"{AGENT}={self._agent_id}"}
        containers: list[Mapping[str, Any]] = client.containers(all=True, filters=filters)
        return [c for c in containers if c["Labels"].get(SESSION) and c["Labels"].get(KERNEL)]

    async def _kernel(self, container: Mapping[str, Any]) -> Kernel:
        container_id, labels = str(container["Id"]), container["Labels"]
        is_running = container["State"] in RUNNING | CREATED
        exit_code, is_out_of_memory, usage = None, False, None
        if container["State"] in RUNNING:
            usage = await self._usage(container_id)
        elif not is_running:
            exit_code, is_out_of_memory = await self._end_of(container_id)
        return Kernel(
            kernel_id=labels[KERNEL],
            session_id=labels[SESSION],
            container_id=container_id,
            is_running=is_running,
            exit_code=exit_code,
            is_out_of_memory=is_out_of_memory,
            usage=usage,
        )

    async def _usage(self, container_id: str) -> Mapping[str, Any] | None:
        def sample(client: docker.APIClient) -> Mapping[str, Any]:
            # Without one_shot, Docker would wait one second for a second sample.
            stats: Mapping[str, Any] = client.stats(container_id, stream=False, one_shot=True)
            return stats

        try:
            return self._meter.read(container_id, await self._calls.run("query", sample))
        except (Unavailable, docker.errors.APIError):
            return None

    async def _end_of(self, container_id: str) -> tuple[int | None, bool]:
        """Return the exit code, None if it is unknown, and whether the memory was exceeded."""
        try:
            facts = await self._calls.run("query", lambda c: c.inspect_container(container_id))
        except (Unavailable, docker.errors.APIError):
            return None, False
        state = facts["State"]
        return int(state["ExitCode"]), bool(state.get("OOMKilled"))


def _containers_of(pids: Collection[int]) -> dict[int, str]:
    """Return the container id by pid, from the process's cgroup, which users cannot change."""
    container_ids = {}
    for pid in pids:
        try:
            match = CONTAINER.search(Path(f"/proc/{pid}/cgroup").read_text())
        except OSError:
            continue
        if match is not None:
            container_ids[pid] = match[0]
    return container_ids


def set_limits(client: docker.APIClient, container_id: str, slots: Mapping[str, int]) -> None:
    """Set the limits of a running container.

    The spawner sets ``NanoCpus``, which ``APIClient.update_container`` does not support.
    """
    limits: dict[str, int] = {}
    if CPU in slots:
        limits["NanoCpus"] = slots[CPU] * 1_000_000
    if MEM in slots:
        limits |= {"Memory": slots[MEM], "MemorySwap": slots[MEM]}
    url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/update"
    response = client.post(url, json=limits, timeout=client.timeout)
    try:
        response.raise_for_status()
    except requests.exceptions.HTTPError as error:
        raise docker.errors.create_api_error_from_http_exception(error) from error


def _stopper(container_id: str, grace_seconds: float) -> Callable[[docker.APIClient], None]:
    return lambda client: client.stop(container_id, timeout=round(grace_seconds))


def _remover(container_id: str, grace_seconds: float) -> Callable[[docker.APIClient], None]:
    def remove(client: docker.APIClient) -> None:
        try:
            client.stop(container_id, timeout=round(grace_seconds))
            client.remove_container(container_id, force=True, v=True)
        except docker.errors.APIError as error:
            # Ignore errors that mean that another client is removing, or has removed, the
            # container.
            if error.status_code not in GONE_OR_BEING_REMOVED:
                raise

    return remove
