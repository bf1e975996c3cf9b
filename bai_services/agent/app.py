"""`bai-agent`: configuration and composition of the agent."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traitlets import Enum, Float, Integer, List, TraitError, Unicode, default
from traitlets.config import Application, Config, Configurable
from traitlets.config.loader import DeferredConfigString

from bai_services import __version__
from bai_services.client import Token
from bai_services.core.cluster.egress import Policy, Target, parse_targets
from bai_services.core.cluster.model import check_agent_id
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.resources import CPU, MEM, ResourceSlots, parse_amount
from bai_services.service_client import ServiceClient

from .agent import Agent, Identity
from .devices.base import DeviceKind
from .devices.device_grants import DeviceGrants
from .devices.inventory import Inventory
from .devices.kinds import Machine, all_kinds
from .devices.memory_watchdog import Action, Watchdog
from .devices.sharing_settings import SharingSettings
from .docker.calls import DockerCalls
from .docker.containers import DockerEngine
from .docker.egress import Egress
from .docker.layers import Layers
from .docker.networks import Networks, read_pool
from .engine import Engine
from .folders.disk import DiskSettings, DiskWatch, Excess
from .folders.kernel_folders import Folders
from .link import Link
from .machine import capacity, hostname_slug
from .processes import ProcessEngine

log = logging.getLogger("bai_services.agent")

# Traits and the variables that set them; the first non-empty variable counts.
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
    "AgentApp.home": ("BAI_HOME",),
    "AgentApp.cpu": ("BAI_AGENT_CPU",),
    "AgentApp.mem": ("BAI_AGENT_MEM",),
    "DiskSettings.limit": ("BAI_AGENT_DISK_LIMIT",),
    "DiskSettings.excess": ("BAI_AGENT_DISK_EXCESS",),
    "DockerSettings.host": ("BAI_AGENT_DOCKER_HOST", "DOCKER_HOST"),
    "DockerSettings.endpoint": ("BAI_AGENT_DOCKER_ENDPOINT",),
    "DockerSettings.network_pool": ("BAI_AGENT_NETWORK_POOL",),
    "DockerSettings.egress": ("BAI_AGENT_EGRESS",),
    "DockerSettings.egress_allowed": ("BAI_AGENT_EGRESS_ALLOWED",),
}


def from_environment(environ: Mapping[str, str]) -> Config:
    """Return the configuration given by environment variables."""
    config = Config()
    for trait, names in ENVIRONMENT.items():
        text = next(filter(None, map(environ.get, names)), None)
        if text is not None:
            owner, _, name = trait.partition(".")
            config[owner][name] = DeferredConfigString(text)
    return config


class DockerSettings(Configurable):
    """How the agent uses the Docker engine of its machine."""

    host = Unicode(
        "unix:///var/run/docker.sock",
        help="""
        URL by which this agent reaches the engine. `BAI_AGENT_DOCKER_HOST` or `DOCKER_HOST` set
        it too. No effect with the process engine.
        """,
    ).tag(config=True)

    endpoint = Unicode(
        help="""
        URL by which the Hub reaches the same engine (unix, ssh or tcp with TLS). Empty is the
        same as `host`, which is right for a Hub on this machine. `BAI_AGENT_DOCKER_ENDPOINT`
        sets it too.
        """
    ).tag(config=True)

    network_pool = Unicode(
        "10.213.0.0/16",
        help="""
        IPv4 network that the networks of users are cut from; choose one that nothing else here
        uses. `BAI_AGENT_NETWORK_POOL` sets it too.
        """,
    ).tag(config=True)

    network_prefix = Integer(
        26,
        min=16,
        max=29,
        help="Prefix length of one user's network: 26 is for about 60 sessions at once.",
    ).tag(config=True)

    egress = Enum(
        [policy.value for policy in Policy],
        Policy.DEFAULT.value,
        help="""
        What sessions may reach beside the Hub, the manager and `egress_allowed`: `default` is the
        internet and name servers, but no port of this machine and no private or link-local
        network; `closed` is nothing; `open` sets no rules. It needs root and iptables; an agent
        without them says so. `BAI_AGENT_EGRESS` sets it too.
        """,
    ).tag(config=True)

    egress_allowed = Unicode(
        help="""
        Further networks that sessions may reach, comma separated, each with a port or without:
        `10.1.0.0/16, 10.2.0.3:443, [fd00::3]:443`. `BAI_AGENT_EGRESS_ALLOWED` sets it too.
        """
    ).tag(config=True)

    timeout_seconds = Float(
        30, min=1, help="Seconds after which a call to the engine counts as not answered."
    ).tag(config=True)

    def hub_endpoint(self) -> str:
        return self.endpoint or self.host

    def allowed(self) -> tuple[Target, ...]:
        """Return the parsed ``egress_allowed``.

        Raises
        ------
        InvalidRequest
            If an entry is malformed.
        """
        try:
            return parse_targets(self.egress_allowed)
        except ValueError as error:
            raise InvalidRequest(
                f"BAI_AGENT_EGRESS_ALLOWED: {error}; write for instance 10.1.0.0/16,10.2.0.3:443"
            ) from None


class AgentApp(Application):
    """Runs on every machine that runs sessions; it calls the manager, nothing calls it."""

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

    config_file = Unicode(help="Python file with settings (`c.AgentApp…`). Empty: no file.").tag(
        config=True
    )
    manager_url = Unicode(
        help="Direct address of the manager, not through the proxy. `BAI_MANAGER_URL` sets it too."
    ).tag(config=True)
    token_file = Unicode(
        help="File with the secret that all agents share. `BAI_AGENT_TOKEN_FILE` sets it too."
    ).tag(config=True)
    agent_id = Unicode(
        help="Name of this machine for the manager, unique; empty takes the host name. "
        "`BAI_AGENT_ID` sets it too."
    ).tag(config=True)
    resource_group = Unicode(
        "default",
        help="Resource group that a new agent joins; an administrator may move it later. "
        "`BAI_AGENT_RESOURCE_GROUP` sets it too.",
    ).tag(config=True)
    engine = Enum(
        ["process", "docker"],
        "process",
        help="What runs sessions here. `BAI_AGENT_ENGINE` or `BAI_ENGINE` set it too.",
    ).tag(config=True)
    simulated_gpus = Integer(
        2,
        min=0,
        max=64,
        help="Simulated GPUs of a machine without a real one; 0 offers none. No effect where "
        "there is a real one. `BAI_AGENT_SIMULATED_GPUS` sets it too.",
    ).tag(config=True)
    accelerator_table = Unicode(
        help="YAML file that adds to the table of accelerators, or changes rows of it; see "
        "docs/accelerators.md. `BAI_AGENT_ACCELERATOR_TABLE` sets it too.",
    ).tag(config=True)
    masked_devices = List(
        Unicode(),
        help="Ids of devices that sessions must not get. Sessions that use one continue.",
    ).tag(config=True)
    device_excess = Enum(
        [action.value for action in Action],
        Action.TERMINATE.value,
        help="What happens to a session that holds more of a device's memory than its share: its "
        "owner is told (warn), its largest process there is ended (terminate), or it is stopped "
        "(stop). `BAI_AGENT_DEVICE_EXCESS` sets it too.",
    ).tag(config=True)
    home = Unicode(
        ".bai",
        help="State folder; sessions have theirs below `sessions/`. `BAI_HOME` sets it too.",
    ).tag(config=True)
    cpu = Unicode(
        help="Cores that sessions may have together; empty takes all that this process may use, "
        "more than there are makes sessions share them. `BAI_AGENT_CPU` sets it too."
    ).tag(config=True)
    mem = Unicode(
        help="Memory that sessions may have together, like `16g`; empty takes all that this "
        "process may use. `BAI_AGENT_MEM` sets it too."
    ).tag(config=True)
    stop_grace_seconds = Float(
        5,
        min=0,
        help="Seconds between asking something left over to end and killing it.",
    ).tag(config=True)

    def initialize(self, argv: list[str] | None = None) -> None:
        """Read the environment, then the file, then the command line; the last value counts."""
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
        )
        folders = Folders(Path(self.home), opens_directories=self.engine == "process")
        engine = self._make_engine(folders)
        kinds = await asyncio.to_thread(self.device_kinds)
        inventory = Inventory(kinds, self.masked_devices)
        async with ServiceClient(self.manager_url, Token(self._secret())) as client:
            link = Link(client, identity.agent_id)
            log.info("agent %s: %s engine, %s", identity.agent_id, engine.name, str(identity.slots))
            holdings = DeviceGrants(folders)
            watchdog = Watchdog(inventory, engine, holdings, Action(self.device_excess))
            disk = self._disk_watch(engine, folders)
            agent = Agent(identity, link, engine, inventory, folders, holdings, watchdog, disk)
            await agent.run(stop)

    def device_kinds(self) -> list[DeviceKind]:
        """Return the device kinds that this machine may have; it blocks.

        Raises
        ------
        InvalidRequest
            If the table of accelerators or a setting cannot be used.
        """
        sharing = SharingSettings(parent=self)
        excess = Action(self.device_excess)
        rules = sharing.rules(self.engine, self.own_id, Path(self.home), excess)
        machine = Machine(self.own_id, gpus=rules, rngd_parts=int(sharing.rngd_parts))
        return all_kinds(machine, self.simulated_gpus, self.accelerator_table)

    def _disk_watch(self, engine: Engine, folders: Folders) -> DiskWatch:
        settings = DiskSettings(parent=self)
        return DiskWatch(engine, folders, settings.limit_bytes(), Excess(settings.excess))

    def _slots(self) -> ResourceSlots:
        mine = capacity()
        return ResourceSlots(
            {
                CPU: parse_amount(CPU, self.cpu) if self.cpu else mine.cpu_millis,
                MEM: parse_amount(MEM, self.mem) if self.mem else mine.mem_bytes,
            }
        )

    def _secret(self) -> str:
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
            Egress(self.own_id, Policy(settings.egress), settings.allowed(), [self.manager_url]),
            Layers(calls, DiskSettings(parent=self).limit_bytes()),
            endpoint=settings.hub_endpoint(),
            stop_grace_seconds=self.stop_grace_seconds,
        )


def main(argv: list[str] | None = None) -> Any:
    """Run the agent; a wrong configuration ends it with one sentence and exit code 2."""
    try:
        AgentApp.launch_instance(argv)
    except (BaiError, TraitError) as error:
        print(f"bai-agent: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
