"""`bai-agent`: configuration and composition of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Enum, Float, Integer, List, TraitError, Unicode, default
from traitlets.config import Application, Config
from traitlets.config.loader import DeferredConfigString
from traitlets.utils.importstring import import_item

from bai_services import __version__, tracing
from bai_services.client import Token
from bai_services.core.cluster.egress import Policy
from bai_services.core.cluster.model import check_agent_id
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.operations.component_settings import ReportedSetting
from bai_services.core.resources import CPU, MEM, ResourceSlots, parse_amount
from bai_services.engines.base import Engine as LaunchEngine
from bai_services.service_client import ServiceClient
from bai_services.trait_settings import as_json, settings_of

from .agent import Agent, Identity
from .checks import MachineChecks
from .commands import join_command, leave_command, load_state
from .devices.base import DeviceKind
from .devices.device_grants import DeviceGrants
from .devices.kinds import Machine, all_kinds
from .devices.machine_devices import MachineDevices
from .devices.memory_watchdog import Action, Watchdog
from .devices.sharing_settings import SharingSettings
from .docker.calls import DockerCalls
from .docker.containers import DockerEngine
from .docker.egress import Egress
from .docker.image_uses import ImageUses
from .docker.layers import Layers
from .docker.networks import Networks, read_pool
from .docker.runtime import Runtime
from .docker.settings import DockerSettings
from .engine import Engine
from .fence import Fence
from .folders.disk import DiskSettings, DiskWatch, ExcessAction
from .folders.kernel_folders import Folders
from .launches import Launches
from .link import Link
from .machine import detect_capacity, hostname_slug
from .machine_load import MachineLoad
from .processes import ProcessEngine

log = logging.getLogger("bai_services.agent")

# The argument that starts a guard, which is an internal command.
GUARD = "guard"
GUARD_LOCK = "guard.lock"
GUARD_LOCK_SECONDS = 10

# Maps a trait to the environment variables that set it; the first non-empty variable applies.
ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "AgentApp.manager_url": ("BAI_MANAGER_URL",),
    "AgentApp.token_file": ("BAI_AGENT_TOKEN_FILE",),
    "AgentApp.agent_id": ("BAI_AGENT_ID",),
    "AgentApp.resource_group": ("BAI_AGENT_RESOURCE_GROUP",),
    "AgentApp.engine": ("BAI_AGENT_ENGINE", "BAI_ENGINE"),
    "AgentApp.simulated_gpus": ("BAI_AGENT_SIMULATED_GPUS",),
    "AgentApp.accelerator_table": ("BAI_AGENT_ACCELERATOR_TABLE",),
    "AgentApp.device_excess": ("BAI_AGENT_DEVICE_EXCESS",),
    "SharingSettings.minimum_enforcement": ("BAI_AGENT_MINIMUM_ENFORCEMENT",),
    "SharingSettings.mps_share": ("BAI_AGENT_MPS_SHARE",),
    "SharingSettings.set_compute_mode": ("BAI_AGENT_SET_COMPUTE_MODE",),
    "SharingSettings.run_folder": ("BAI_AGENT_RUN_FOLDER",),
    "SharingSettings.rngd_parts": ("BAI_AGENT_RNGD_PARTS",),
    "AgentApp.runs_batch": ("BAI_AGENT_RUNS_BATCH",),
    "AgentApp.home": ("BAI_HOME",),
    "AgentApp.cpu": ("BAI_AGENT_CPU",),
    "AgentApp.mem": ("BAI_AGENT_MEM",),
    "DiskSettings.limit": ("BAI_AGENT_DISK_LIMIT",),
    "DiskSettings.excess": ("BAI_AGENT_DISK_EXCESS",),
    "DockerSettings.host": ("BAI_AGENT_DOCKER_HOST", "DOCKER_HOST"),
    "DockerSettings.endpoint": ("BAI_AGENT_DOCKER_ENDPOINT",),
    "DockerSettings.address": ("BAI_AGENT_ADDRESS",),
    "DockerSettings.clients": ("BAI_AGENT_CLIENTS",),
    "DockerSettings.network_pool": ("BAI_AGENT_NETWORK_POOL",),
    "DockerSettings.egress": ("BAI_AGENT_EGRESS",),
    "DockerSettings.egress_allowed": ("BAI_AGENT_EGRESS_ALLOWED",),
    "DockerSettings.image_limit": ("BAI_AGENT_IMAGE_LIMIT",),
    "DockerSettings.runtime_image": ("BAI_AGENT_RUNTIME_IMAGE",),
    "DockerSettings.build_variables": ("BAI_AGENT_BUILD_VARIABLES",),
}


def from_environment(environ: Mapping[str, str]) -> Config:
    """Return the configuration that the environment variables set."""
    config = Config()
    for trait, names in ENVIRONMENT.items():
        text = next(filter(None, map(environ.get, names)), None)
        if text is not None:
            owner, _, name = trait.partition(".")
            config[owner][name] = DeferredConfigString(text)
    return config


class AgentApp(Application):
    """Agent process: runs on every machine with sessions and connects to the manager.

    It accepts no connections itself.
    """

    name = "bai-agent"
    version = __version__
    description = __doc__
    classes = [DiskSettings, DockerSettings, SharingSettings]
    aliases = {
        "manager": "AgentApp.manager_url",
        "id": "AgentApp.agent_id",
        "group": "AgentApp.resource_group",
        "engine": "AgentApp.engine",
        "config": "AgentApp.config_file",
        "log-level": "Application.log_level",
    }

    config_file = Unicode(
        help="Python file with settings (`c.AgentApp…`). Empty: no file is read."
    ).tag(config=True)
    manager_url = Unicode(
        help="URL of the manager itself, not of the proxy. Environment: `BAI_MANAGER_URL`."
    ).tag(config=True)
    token_file = Unicode(
        help="File with the secret shared by all agents. Environment: `BAI_AGENT_TOKEN_FILE`."
    ).tag(config=True)
    agent_id = Unicode(
        help="Unique id of this agent at the manager. Empty: the host name. "
        "Environment: `BAI_AGENT_ID`."
    ).tag(config=True)
    resource_group = Unicode(
        "default",
        help="Resource group that a new agent joins; an administrator can move it later. "
        "Environment: `BAI_AGENT_RESOURCE_GROUP`.",
    ).tag(config=True)
    engine = Enum(
        ["process", "docker"],
        "process",
        help="Engine that runs the sessions of this machine. Environment: `BAI_AGENT_ENGINE` or "
        "`BAI_ENGINE`.",
    ).tag(config=True)
    simulated_gpus = Integer(
        None,
        min=0,
        max=64,
        allow_none=True,
        help="Number of simulated GPUs on a machine without an NVIDIA GPU; 0 offers none. Default: "
        "2 on a machine without any accelerator, else 0. No effect on a machine with an NVIDIA "
        "GPU. "
        "Environment: `BAI_AGENT_SIMULATED_GPUS`.",
    ).tag(config=True)
    accelerator_table = Unicode(
        help="YAML file that adds rows to the table of accelerators or replaces some of them; see "
        "docs/accelerators.md. Environment: `BAI_AGENT_ACCELERATOR_TABLE`.",
    ).tag(config=True)
    masked_devices = List(
        Unicode(),
        help="Ids of devices that are not allocated to new sessions. Running sessions keep these "
        "devices.",
    ).tag(config=True)
    device_excess = Enum(
        [action.value for action in Action],
        Action.TERMINATE.value,
        help="Action on a session that uses more of a device's memory than its share: `warn` "
        "notifies its owner, `terminate` also ends its largest process on the device, `stop` stops "
        "the session. Environment: `BAI_AGENT_DEVICE_EXCESS`.",
    ).tag(config=True)
    home = Unicode(
        ".bai",
        help="State folder; the folders of sessions are in `sessions/` inside it. "
        "Environment: `BAI_HOME`.",
    ).tag(config=True)
    cpu = Unicode(
        help="Total number of cores for sessions. Empty: all cores that this process may use. A "
        "larger number overcommits the cores. Environment: `BAI_AGENT_CPU`."
    ).tag(config=True)
    mem = Unicode(
        help="Total memory for sessions, such as `16g`. Empty: all memory that this process may "
        "use. Environment: `BAI_AGENT_MEM`."
    ).tag(config=True)
    runs_batch = Bool(
        False,
        help="Whether this agent starts batch sessions itself, without a server of the Hub. The "
        "settings of the engine (`ProcessEngine` or `DockerEngine`) must then be the same in the "
        "configuration files of the agent and the Hub. Environment: `BAI_AGENT_RUNS_BATCH`.",
    ).tag(config=True)
    engine_classes = Dict(
        default_value={
            "process": "bai_services.engines.process.ProcessEngine",
            "docker": "bai_services.engines.docker.DockerEngine",
        },
        help="Maps the name of an engine to the class, or its import name, that starts sessions on "
        "this machine; as in the Hub's `BaiSpawner.engine_classes`.",
    ).tag(config=True)
    session_manager_url = Unicode(
        help="URL at which the sessions that this agent starts reach the manager. Empty: the "
        "value of `manager_url`."
    ).tag(config=True)
    stop_grace_seconds = Float(
        5,
        min=0,
        help="Seconds between SIGTERM and SIGKILL when the agent removes a kernel.",
    ).tag(config=True)

    def initialize(self, argv: list[str] | None = None) -> None:
        """Read the environment, the configuration file and the command line.

        The command line overrides the file, and the file overrides the environment.
        """
        self._arguments = list(sys.argv[1:] if argv is None else argv)
        self.update_config(from_environment(os.environ))
        self.parse_command_line(argv)
        if self.config_file:
            self.load_config_file(self.config_file)
            self.update_config(self.cli_config)

    @default("log_level")
    def _default_log_level(self) -> int:
        return logging.INFO

    @property
    def own_id(self) -> str:
        return check_agent_id(self.agent_id or hostname_slug(platform.node()))

    def start(self) -> None:
        logging.basicConfig(
            level=int(str(self.log_level)),
            format="[%(levelname).1s %(asctime)s %(name)s] %(message)s",
        )
        tracing.set_up("bai-agent", os.environ, self.own_id)
        asyncio.run(self.run())

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        identity = Identity(
            agent_id=self.own_id,
            resource_group=self.resource_group,
            architecture=platform.machine(),
            slots=self._slots(),
            settings=as_json(self.settings()),
        )
        folders = Folders(Path(self.home), engine_binds_subpaths=self.engine == "process")
        engine = self._make_engine(folders)
        kinds = await asyncio.to_thread(self.device_kinds)
        devices = MachineDevices(kinds, self.masked_devices)
        async with ServiceClient(self.manager_url, Token(self._read_secret())) as client:
            link = Link(client, identity.agent_id)
            log.info("agent %s: %s engine, %s", identity.agent_id, engine.name, str(identity.slots))
            grants = DeviceGrants(folders)
            watchdog = Watchdog(devices, engine, grants, Action(self.device_excess))
            disk = self._disk_watch(engine, folders)
            load = MachineLoad(Path(self.home))
            checks = MachineChecks(self.manager_url, self._docker_host(), Path(self.home))
            agent = Agent(
                identity,
                link,
                engine,
                devices,
                folders,
                grants,
                watchdog,
                disk,
                load,
                checks,
                self._launches(link, folders),
                Fence(Path(self.home), folders, engine),
                self._start_guard,
            )
            await self._run(agent, stop)

    async def _run(self, agent: Agent, stop: asyncio.Event) -> None:
        await agent.run(stop)

    def _start_guard(self) -> None:
        """Start ``GuardApp`` with the same configuration; blocking."""
        subprocess.Popen(
            [sys.executable, "-m", "bai_services.agent", GUARD, *self._arguments],
            stdin=subprocess.DEVNULL,
            # A reader of this process's output must not wait for the end of the guard.
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def settings(self) -> list[ReportedSetting]:
        """Return the settings of this agent, without secrets."""
        parts = [self, *(cls(parent=self) for cls in self.classes)]
        return settings_of(parts, from_environment(os.environ))

    def device_kinds(self) -> list[DeviceKind]:
        """Return the device kinds that the agent searches this machine for; blocking.

        Raises
        ------
        InvalidRequest
            If a setting is invalid, or if two device kinds (built-in, from a plugin or from the
            accelerator table) have the same family.
        """
        sharing = SharingSettings(parent=self)
        excess = Action(self.device_excess)
        rules = sharing.rules(self.engine, self.own_id, Path(self.home), excess)
        machine = Machine(self.own_id, gpus=rules, rngd_parts=int(sharing.rngd_parts))
        return all_kinds(machine, self.simulated_gpus, self.accelerator_table)

    def _disk_watch(self, engine: Engine, folders: Folders) -> DiskWatch:
        settings = DiskSettings(parent=self)
        return DiskWatch(engine, folders, settings.limit_bytes(), ExcessAction(settings.excess))

    def _slots(self) -> ResourceSlots:
        detected = detect_capacity()
        return ResourceSlots(
            {
                CPU: parse_amount(CPU, self.cpu) if self.cpu else detected.cpu_millis,
                MEM: parse_amount(MEM, self.mem) if self.mem else detected.mem_bytes,
            }
        )

    def _read_secret(self) -> str:
        if not self.manager_url:
            raise InvalidRequest("set BAI_MANAGER_URL (AgentApp.manager_url) to the manager's URL")
        try:
            secret = Path(self.token_file).read_text().strip() if self.token_file else ""
        except OSError as error:
            raise InvalidRequest(f"BAI_AGENT_TOKEN_FILE cannot be read: {error}") from error
        if not secret:
            raise InvalidRequest(
                "set BAI_AGENT_TOKEN_FILE (AgentApp.token_file) to the file with the agents' secret"
            )
        return secret

    def _docker_host(self) -> str:
        """Return the URL of the Docker engine, "" with the process engine."""
        return "" if self.engine == "process" else str(DockerSettings(parent=self).host)

    def _launches(self, link: Link, folders: Folders) -> Launches:
        return Launches(
            link,
            self._launch_engine(),
            folders,
            is_offered=self.runs_batch,
            manager_url=self.session_manager_url or self.manager_url,
            endpoint=self._docker_host(),
        )

    def _launch_engine(self) -> LaunchEngine:
        """Return the engine that starts kernels on this machine."""
        cls = self.engine_classes[self.engine]
        cls = import_item(cls) if isinstance(cls, str) else cls
        # Engine and agent must use the same folders.
        config = Config({"ProcessEngine": {"state_dir": self.home}})
        config.merge(self.config)
        engine: LaunchEngine = cls(parent=self, config=config)
        return engine

    def _make_engine(self, folders: Folders) -> Engine:
        if self.engine == "process":
            return ProcessEngine(self.own_id, folders, self.stop_grace_seconds)
        settings = DockerSettings(parent=self)
        calls = DockerCalls(settings.host, settings.timeout_seconds)
        pool = read_pool(settings.network_pool, settings.network_prefix)
        return DockerEngine(
            self.own_id,
            calls,
            Networks(calls, self.own_id, pool, settings.network_prefix),
            Egress(
                self.own_id,
                Policy(settings.egress),
                settings.allowed_targets(),
                [self.manager_url],
                settings.client_networks(),
            ),
            Layers(calls, DiskSettings(parent=self).limit_bytes()),
            ImageUses(Path(self.home) / "image-uses.json", parse_amount(MEM, settings.image_limit)),
            Runtime(calls, settings.runtime_image, Path(self.home) / "image-facts.json"),
            endpoint=settings.hub_endpoint(),
            stop_grace_seconds=self.stop_grace_seconds,
            address=settings.published_address(),
            build_variables=settings.parsed_build_variables(),
        )


class GuardApp(AgentApp):
    """Stops batch sessions when the lease expires, after the agent has ended without a sign-off.

    It runs in its own session, so it survives the agent and its systemd unit.
    """

    async def _run(self, agent: Agent, stop: asyncio.Event) -> None:
        # An agent that restarts repeatedly without the manager leaves one guard. The lock ends with
        # this process.
        lock = os.open(Path(self.home) / GUARD_LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if await _has_locked(lock, stop):
            await agent.guard(stop)


async def _has_locked(file: int, stop: asyncio.Event) -> bool:
    """Return whether the lock of the guard was free within ``GUARD_LOCK_SECONDS``.

    An earlier guard that notices a newer lease ends within this time.
    """
    for _ in range(GUARD_LOCK_SECONDS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1)
                return False
        else:
            return True
    return False


def main(argv: list[str] | None = None) -> Any:
    """Run the agent or another command.

    Report an invalid configuration or a failed command on stderr, and exit with code 2.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        match arguments[:1]:
            case ["join"]:
                join_command(arguments[1:])
            case ["leave"]:
                leave_command(arguments[1:])
            case ["run"]:
                AgentApp.launch_instance(load_state(arguments[1:]))
            case [command] if command == GUARD:
                GuardApp.launch_instance(arguments[1:])
            case _:
                AgentApp.launch_instance(arguments)
    except (BaiError, TraitError) as error:
        print(f"bai-agent: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
