"""Units of systemd for an installation: one service per component, in one target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .settings import EngineKind, Installation, Tls

TARGET = "bai-hub.target"
NO_RESTART_EXIT_CODE = 78
"""Exit code of a manager whose database cannot be migrated: a restart does not help."""


class Component(StrEnum):
    """A process of the installation; the value is the argument of `bai-hub run`."""

    PROXY = "proxy"
    HUB = "hub"
    MANAGER = "manager"
    GATEWAY = "gateway"
    AGENT = "agent"


DESCRIPTIONS: Mapping[Component, str] = {
    Component.PROXY: "proxy in front of the Hub and the sessions",
    Component.HUB: "JupyterHub",
    Component.MANAGER: "manager",
    Component.GATEWAY: "gateway of endpoints",
    Component.AGENT: "agent of this machine",
}

# Capabilities of the components that run as root with the engine docker. The manager creates files
# for the owners of folders; quotas of file systems need CAP_SYS_ADMIN.
ROOT_CAPABILITIES: Mapping[Component, tuple[str, ...]] = {
    Component.MANAGER: (
        "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
        "CAP_SETUID", "CAP_SETGID", "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE",
    ),
    # The agent also sets rules of iptables and ends processes of other users.
    Component.AGENT: (
        "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
        "CAP_KILL", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SETUID", "CAP_SETGID", "CAP_SYS_ADMIN",
        "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_MKNOD",
    ),
}  # fmt: skip

# Secrets by component, for components that need no other file of the state folder.
ONLY_SECRETS: Mapping[Component, tuple[str, ...]] = {
    Component.PROXY: ("proxy",),
    Component.GATEWAY: ("gateway-token", "metrics-token"),
}

_COMMON = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    # AF_NETLINK is needed to read the addresses of interfaces.
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
)
# For components that start no sessions and manage no devices.
_CONFINED = (
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)


AGENT_UNIT = "bai-agent.service"


@dataclass(frozen=True, slots=True)
class JoinedAgent:
    """An agent on this machine that has joined an installation on another machine.

    ``program`` is the path of `bai-agent`. ``state`` contains its credential and its settings.
    ``user`` runs the sessions of the engine process; the engine docker ignores it.
    """

    program: str
    state: str
    engine: EngineKind
    user: str
    storage: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """The command `bai-hub` of this installation, and the folder with the settings."""

    path: str
    folder: str


def unit_name(component: Component) -> str:
    return "bai-hub.service" if component is Component.HUB else f"bai-hub-{component}.service"


def units(installation: Installation, program: Program) -> dict[str, str]:
    """Return the text of each unit by its file name."""
    services = {
        unit_name(component): _service(installation, component, program) for component in Component
    }
    wants = " ".join(services)
    target = _ini(
        {
            "Unit": ["Description=bai-hub", f"Wants={wants}"],
            "Install": ["WantedBy=multi-user.target"],
        }
    )
    user = f'u {installation.service_user} - "bai-hub" {installation.state}\n'
    return {**services, TARGET: target, "bai-hub.sysusers.conf": user}


def agent_unit(agent: JoinedAgent) -> str:
    """Return the unit of a joined agent, with the same rules as for an installation's own agent."""
    is_docker = agent.engine is EngineKind.DOCKER
    after = "network-online.target docker.service" if is_docker else "network-online.target"
    writable = [agent.state, *(f"-{path}" for path in agent.storage), "-/run"]
    confinement = (
        f"CapabilityBoundingSet={' '.join(ROOT_CAPABILITIES[Component.AGENT])}"
        if is_docker
        else "CapabilityBoundingSet="
    )
    return _ini(
        {
            "Unit": [
                f"Description=bai-hub: {DESCRIPTIONS[Component.AGENT]}",
                f"After={after}",
                "Wants=network-online.target",
            ],
            "Service": [
                "Type=exec",
                f"ExecStart={agent.program} run --state {agent.state}",
                "Restart=on-failure",
                "RestartSec=2",
                "TimeoutStopSec=60",
                f"User={'root' if is_docker else agent.user}",
                "LimitNOFILE=65536",
                "KillMode=process",
                *([] if is_docker else ["TasksMax=infinity"]),
                *_COMMON,
                *_path_rules(writable, [*writable, agent.program]),
                confinement,
            ],
            "Install": ["WantedBy=multi-user.target"],
        },
        "bai-agent join",
    )


def runs_as_root(installation: Installation, component: Component) -> bool:
    """Return whether a component needs root, because it manages files or devices of users."""
    return installation.engine is EngineKind.DOCKER and component in ROOT_CAPABILITIES


def _service(installation: Installation, component: Component, program: Program) -> str:
    return _ini(
        {
            "Unit": [
                f"Description=bai-hub: {DESCRIPTIONS[component]}",
                f"PartOf={TARGET}",
                f"After={' '.join(_after(installation, component))}",
                "Wants=network-online.target",
            ],
            "Service": [
                "Type=exec",
                f"ExecStart={program.path} run {component} {program.folder}",
                "Restart=on-failure",
                f"RestartPreventExitStatus={NO_RESTART_EXIT_CODE}",
                "RestartSec=2",
                "TimeoutStopSec=60",
                *_user(installation, component),
                *_process(installation, component),
                *_COMMON,
                *_paths(installation, component, program),
                *_confinement(installation, component),
            ],
            "Install": [f"WantedBy={TARGET}"],
        }
    )


def _after(installation: Installation, component: Component) -> Iterator[str]:
    yield "network-online.target"
    if installation.database and component in (Component.HUB, Component.MANAGER):
        yield "postgresql.service"
    if installation.engine is EngineKind.DOCKER and component is not Component.PROXY:
        yield "docker.service"


def _user(installation: Installation, component: Component) -> list[str]:
    if runs_as_root(installation, component):
        return ["User=root"]
    lines = [f"User={installation.service_user}"]
    if installation.engine is EngineKind.DOCKER and component is Component.HUB:
        lines.append("SupplementaryGroups=docker")
    return lines


def _process(installation: Installation, component: Component) -> list[str]:
    """Return the lines that limit a process and define how it is stopped."""
    lines = ["LimitNOFILE=65536"]
    if installation.engine is EngineKind.PROCESS and component in (Component.HUB, Component.AGENT):
        # Sessions are processes of these components. They continue when the component restarts.
        lines += ["KillMode=process", "TasksMax=infinity"]
    elif component is Component.AGENT:
        # Daemons that enforce shares of devices continue when the agent restarts.
        lines.append("KillMode=process")
    else:
        lines += ["KillMode=mixed", "UMask=0077"]
    return lines


def _paths(installation: Installation, component: Component, program: Program) -> list[str]:
    """Return the lines that define which files a component can read and write."""
    needed = [program.path, program.folder, installation.certificate, installation.certificate_key]
    writable: list[str] = []
    if component not in ONLY_SECRETS:
        writable.append(installation.state)
    if component in (Component.MANAGER, Component.AGENT) or (
        installation.engine is EngineKind.PROCESS and component is Component.HUB
    ):
        writable += [host.path for host in installation.storage]
    if component is Component.AGENT:
        writable.append("-/run")
    lines = _path_rules(writable, [installation.state, *needed])
    if component in ONLY_SECRETS:
        lines += _hidden(installation, ONLY_SECRETS[component], needed)
    return lines


def _path_rules(writable: Sequence[str], needed: Sequence[str]) -> list[str]:
    """Return the lines for the paths that a component writes, and for the other paths that it
    needs.
    """
    in_home = any(
        path.startswith(("/home/", "/root/", "/run/user/")) for path in [*writable, *needed]
    )
    rules = [f"ReadWritePaths={' '.join(writable)}"] if writable else []
    return [*rules, f"ProtectHome={'read-only' if in_home else 'yes'}"]


def _hidden(
    installation: Installation, secrets: Sequence[str], needed: Sequence[str]
) -> Iterator[str]:
    """Yield lines that hide the database password and the state folder, except for ``secrets``.

    A state folder that contains the program or the settings remains readable.
    """
    if password := installation.database_password_file:
        yield f"InaccessiblePaths=-{password}"
    if not any(_is_below(path, installation.state) for path in needed):
        yield f"TemporaryFileSystem={installation.state}:ro"
        paths = [f"{installation.state}/secrets/{secret}" for secret in secrets]
        yield f"BindReadOnlyPaths={' '.join(paths)}"


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _confinement(installation: Installation, component: Component) -> list[str]:
    if runs_as_root(installation, component):
        lines = [f"CapabilityBoundingSet={' '.join(ROOT_CAPABILITIES[component])}"]
        if component is Component.MANAGER:
            lines += ["PrivateTmp=yes", "RestrictNamespaces=yes"]
        return lines
    if installation.engine is EngineKind.PROCESS and component in (Component.HUB, Component.AGENT):
        # Beyond ``_COMMON``, restrict only capabilities, because sandboxes of sessions need user
        # namespaces, and sessions may use devices.
        return ["CapabilityBoundingSet="]
    needs_port = component is Component.PROXY and installation.proxy_port < 1024
    capability = "CAP_NET_BIND_SERVICE" if needs_port or _redirects(installation, component) else ""
    # The manager must be able to set the setgid bit of shared folders.
    confined = [x for x in _CONFINED if component is not Component.MANAGER or "SUIDSGID" not in x]
    lines = [*confined, f"CapabilityBoundingSet={capability}"]
    if capability:
        lines.append(f"AmbientCapabilities={capability}")
    if component is Component.GATEWAY:
        # Only for the gateway, because the other components compile code at run time (node, numba,
        # cffi).
        lines.append("MemoryDenyWriteExecute=yes")
    return lines


def _redirects(installation: Installation, component: Component) -> bool:
    """Return whether the proxy also listens on port 80 and redirects to HTTPS."""
    return (
        component is Component.PROXY
        and installation.tls is Tls.CERTIFICATE
        and installation.port == 443
    )


def _ini(
    sections: Mapping[str, Sequence[str]], generator: str = "bai-hub init from bai-hub.toml"
) -> str:
    parts = [f"# Generated by {generator}."]
    for name, lines in sections.items():
        parts += ["", f"[{name}]", *lines]
    return "\n".join([*parts, ""])
