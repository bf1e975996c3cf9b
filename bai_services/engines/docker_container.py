"""The container of one kernel: a DockerSpawner configured by the launch plan."""

from __future__ import annotations

import inspect
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import docker
from docker.types import Mount, Ulimit
from dockerspawner import DockerSpawner

from bai_services import tracing
from bai_services.core.cluster.image_probe import CUSTOM
from bai_services.core.folders.mounts import HOME
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.launch_plan import Injection, LaunchPlan

from .cluster_files import archive
from .docker_calls import DockerCalls

NOT_FOUND = 404
CONFLICT = 409
GATEWAY_BRIDGE = "docker_gwbridge"


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Settings of the engine that apply to each of its containers."""

    pids: int
    log_max_size: str
    port: int
    extra_hosts: Mapping[str, str]
    security_options: Sequence[str] = ()


class KernelContainer(DockerSpawner):
    """DockerSpawner that creates and starts the container of a plan on the plan's endpoint.

    The administrator's container settings (``c.DockerSpawner.extra_host_config``,
    ``extra_create_kwargs``, ``volumes``, ``post_start_cmd`` …) apply, but the plan overrides them.
    Differences from DockerSpawner: Docker calls run in `DockerCalls`, not in one thread for the
    whole Hub; images are not pulled, because the agent has pulled them; strings of a plan are not
    templates.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        environ: Mapping[str, str],
        command: Sequence[str],
        calls: DockerCalls,
        limits: ContainerLimits,
        **kwargs: Any,
    ) -> None:
        self._plan = plan
        self._environ = dict(environ)
        self._command = list(command) or None
        self._calls = calls
        # Publish a port of the main kernel only, because the other kernels have no server.
        self._published_on = plan.injection.address if plan.hostname == MAIN_HOST else ""
        super().__init__(
            image=plan.image,
            port=limits.port,
            network_name=plan.injection.network or "bridge",
            use_internal_ip=not self._published_on,
            host_ip=self._published_on,
            use_internal_hostname=False,
            mem_limit=plan.slots.get("mem") or None,
            cpu_limit=None,
            # Remove a container of the same name that an interrupted start has left.
            remove=True,
            **kwargs,
        )
        self.object_name = container_name(plan.session_id, plan.hostname)
        self._limits = limits

    @property
    def client(self) -> docker.APIClient:
        """The Docker client with which DockerSpawner builds the host configuration.

        All calls to Docker use the method `docker` instead.
        """
        return self._client

    async def docker(self, method: str, *args: Any, **kwargs: Any) -> Any:
        # ``shield`` completes the call even if the start of the kernel is cancelled: a container
        # that the call creates is then known and can be removed.
        return await self._calls.run(
            self._plan.endpoint,
            self._plan.user,
            lambda client: getattr(client, method)(*args, **kwargs),
            shield=True,
        )

    async def start(self) -> tuple[str, int]:
        """Create and start the container; return the address and port for the Hub.

        The address is empty if the container has ended already.
        """
        self._client = await self._calls.run(
            self._plan.endpoint, self._plan.user, lambda client: client
        )
        ip, port = await super().start()
        is_internal = self.use_internal_ip and self._plan.hostname == MAIN_HOST
        if ip and is_internal and self._plan.is_cluster:
            ip = await self._gateway_bridge_ip() or ip
        return ip, port

    async def get_ip_and_port(self) -> tuple[str, int]:
        if self.use_internal_ip:
            internal: tuple[str, int] = await super().get_ip_and_port()
            return internal
        published = await self.docker("port", self.container_id, self.port)
        return (self._published_on, int(published[0]["HostPort"])) if published else ("", self.port)

    async def _gateway_bridge_ip(self) -> str:
        """Return the container's address on the gateway bridge; empty without an overlay network.

        Addresses of an overlay network are not reachable from outside it, not even from the host.
        Docker gives each container on an overlay a second address, on a bridge of its host.
        """
        network = await self.docker("inspect_network", self._plan.injection.network)
        if network["Driver"] != "overlay":
            return ""
        bridge = await self.docker("inspect_network", GATEWAY_BRIDGE)
        address: str = bridge["Containers"].get(self.object_id, {}).get("IPv4Address", "")
        return address.partition("/")[0]

    async def create_object(self) -> Mapping[str, Any]:
        """Create the container, and return Docker's response.

        Options of the plan override those of the administrator.
        """
        plan_options = {
            "extra_create_kwargs": _create_options(self._plan),
            "extra_host_config": _host_options(self._plan, self._limits),
        }
        for trait, options in plan_options.items():
            configured = self._eval_if_callable(getattr(self, trait))
            if inspect.isawaitable(configured):
                configured = await configured
            merged = {**(configured or {}), **_literal(options)}
            if trait == "extra_host_config":
                merged = with_device_requirements(merged, self._plan.injection)
            setattr(self, trait, merged)
        with tracing.step("create container"):
            created: Mapping[str, Any] = await super().create_object()
            if self._plan.injection.entrypoint:
                await self.docker("put_archive", self.object_name, "/", custom_folder_archive())
            if self._plan.is_cluster:
                await self.docker("put_archive", self.object_name, "/", archive(self._plan))
            return created

    async def start_object(self) -> None:
        with tracing.step("start container"):
            await super().start_object()

    async def pull_image(self, image: str) -> None:
        """Do nothing: the agent pulls the image before the manager issues the plan."""

    async def remove_object(self) -> None:
        """Remove the container, running or not, with its volumes; idempotent."""
        try:
            await self.docker("remove_container", self.object_name, force=True, v=True)
        except docker.errors.APIError as error:
            # 409: another removal is in progress.
            if error.status_code not in (NOT_FOUND, CONFLICT):
                raise

    def get_env(self) -> dict[str, str]:
        return self._environ

    async def get_command(self) -> list[str] | None:
        return self._command

    @property
    def mount_binds(self) -> list[Mount]:
        """The mounts of the administrator, the injection and the plan (outer paths first)."""
        return [
            *super().mount_binds,
            *(
                Mount(target, name, "volume", read_only=True, no_copy=True)
                for name, target in self._plan.injection.volumes.items()
            ),
            *(
                Mount(m.target, m.source, "bind", m.read_only, propagation="rprivate")
                for m in self._plan.all_mounts
            ),
        ]

    def template_namespace(self) -> dict[str, str]:
        """Return the names available in the administrator's templates."""
        user, server = self._plan.user, self._plan.name
        return {
            "username": self.escape(user),
            "safe_username": self.escape(user),
            "raw_username": user,
            "imagename": self._plan.image.replace("/", "-").replace(":", "-"),
            "servername": self.escape(server.lower()),
            "raw_servername": server,
            "prefix": self.prefix,
        }


def container_name(session_id: str, hostname: str = MAIN_HOST) -> str:
    return f"bai-{session_id}-{hostname}"


def labels_of(plan: LaunchPlan) -> dict[str, str]:
    return {
        "bai.session-id": plan.session_id,
        "bai.kernel-id": plan.kernel_id,
        "bai.agent-id": plan.agent_id,
        "bai.owner": plan.user,
    }


def custom_folder_archive() -> bytes:
    """Return an archive with the folder in which users of an image install packages."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(CUSTOM.strip("/"))
        info.type, info.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(info)
    return buffer.getvalue()


def _create_options(plan: LaunchPlan) -> dict[str, Any]:
    options: dict[str, Any] = {
        "hostname": plan.hostname,
        "user": f"{plan.uid}:{plan.gid}",
        "working_dir": HOME,
        "labels": {**plan.labels, **labels_of(plan)},
    }
    if plan.injection.entrypoint:
        options["entrypoint"] = list(plan.injection.entrypoint)
    if plan.is_cluster:
        # The network belongs to the session, so the host names of its kernels are unique there.
        endpoint = {"Aliases": [plan.hostname]}
        options["networking_config"] = {"EndpointsConfig": {plan.injection.network: endpoint}}
    return options


def _host_options(plan: LaunchPlan, limits: ContainerLimits) -> dict[str, Any]:
    host: dict[str, Any] = {
        "cap_drop": ["ALL"],
        "security_opt": list(limits.security_options),
        "privileged": False,
        "pids_limit": limits.pids,
        "init": True,
        # No auto-remove: exit code and log are read after the container has ended.
        "auto_remove": False,
        "restart_policy": {"Name": "no"},
        "log_config": {
            "type": "json-file",
            "config": {"max-size": limits.log_max_size, "max-file": "1"},
        },
        "extra_hosts": dict(limits.extra_hosts),
        "devices": [_device(node) for node in plan.injection.device_nodes],
        "device_requests": [_device_request(request) for request in plan.injection.device_requests],
    }
    if mem := plan.slots.get("mem"):
        host["memswap_limit"] = mem  # sum of memory and swap, so there is no swap
    if cpu := plan.slots.get("cpu"):
        host["nano_cpus"] = cpu * 1_000_000  # cpu is in thousandths of a core
    if size := plan.injection.layer_limit_bytes:
        host["storage_opt"] = {"size": str(size)}
    if plan.shared_memory_bytes:
        host["shm_size"] = plan.shared_memory_bytes
    return host


def with_device_requirements(host: Mapping[str, Any], injection: Injection) -> dict[str, Any]:
    """Return host options with the capabilities, groups and ulimits that the devices require."""
    ulimits = list(host.get("ulimits") or ())
    if injection.memlock:
        ulimits = [limit for limit in ulimits if Ulimit(**limit).name != "memlock"]
        ulimits.append(Ulimit(name="memlock", soft=-1, hard=-1))
    added = {
        "cap_add": [*(host.get("cap_add") or ()), *injection.capabilities],
        "group_add": [*(host.get("group_add") or ()), *injection.groups],
        "ulimits": ulimits,
    }
    return {**host, **{name: values for name, values in added.items() if values}}


def _device(node: Any) -> str:
    """Return a device node (a path or a mapping) in the form of ``docker run --device``."""
    if not isinstance(node, Mapping):
        return f"{node}:{node}:rw"
    path = node["path"]
    return f"{path}:{node.get('target') or path}:{node.get('permissions') or 'rw'}"


def _device_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a device request (as for ``docker run --gpus``)."""
    known = ("driver", "count", "device_ids", "capabilities", "options")
    return {name: request[name] for name in known if name in request}


def _literal(value: Any) -> Any:
    """Return a value with all braces in its strings escaped.

    DockerSpawner would otherwise format the strings as templates.
    """
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        return {_literal(key): _literal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_literal(item) for item in value]
    return value
