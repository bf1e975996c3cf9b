"""Launch plans, which the manager sends to the spawner to start sessions; their JSON format."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any

from ..errors import InvalidRequest
from .kernel_group import MAIN_HOST


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file on the agent's machine that is mounted in the session.

    ``is_own``: the session's user owns it. With a ``subpath``, only that directory below ``source``
    is mounted. The agent opens it with ``openat2``, which rejects links that lead out of
    ``source``.
    """

    source: str
    target: str
    read_only: bool
    is_own: bool = False
    subpath: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mount:
        """Parse a mount.

        Raises
        ------
        InvalidRequest
            If ``source`` or ``target`` is not an absolute path, or contains ``..`` or a null byte.
        """
        source, target = str(data["source"]), str(data["target"])
        for path in (source, target):
            parts = PurePosixPath(path).parts
            if not path.startswith("/") or ".." in parts or "\0" in path:
                raise InvalidRequest(f"{path!r} is not an absolute path without '..'", path=path)
        flags = bool(data.get("read_only")), bool(data.get("is_own"))
        return cls(source, target, *flags, subpath=str(data.get("subpath") or ""))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        if not self.subpath:
            del data["subpath"]
        return data


@dataclass(frozen=True, slots=True)
class Injection:
    """Settings of a kernel for its devices, home and network; created by its agent."""

    environ: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Default variables, which the user's environment overrides."""
    device_nodes: Sequence[Any] = ()
    device_requests: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mount] = ()
    network: str = ""
    address: str = ""
    """Address of the agent's machine on which the main kernel's port is published; empty: it is
    not published, because the Hub runs on the same machine."""
    capabilities: Sequence[str] = ()
    groups: Sequence[str] = ()
    layer_limit_bytes: int = 0
    """Size limit of the container's writable layer; 0: no limit."""
    memlock: bool = False
    """Whether to lift the limit on locked memory; some drivers lock more than the default."""
    notices: Sequence[str] = ()
    """Notices for the owner of the session."""
    entrypoint: Sequence[str] = ()
    """Entry point of the container; empty: the entry point of the image."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Docker volumes that are mounted read-only: path in the container by name."""
    enforcement: Mapping[str, str] = field(default_factory=dict)
    """Enforcement level by device family."""
    script_seconds: int = 0
    """Longest time that the bootstrap scripts may take."""
    devices: Sequence[Mapping[str, Any]] = ()
    """Descriptions of the session's devices, for the owner."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Injection:
        """Parse an injection.

        Raises
        ------
        InvalidRequest
            If the path of a mount is invalid.
        """
        return cls(
            environ=_texts(data.get("environ")),
            defaults=_texts(data.get("defaults")),
            device_nodes=tuple(data.get("device_nodes") or ()),
            device_requests=tuple(data.get("device_requests") or ()),
            mounts=tuple(Mount.from_json(mount) for mount in data.get("mounts") or ()),
            network=str(data.get("network") or ""),
            address=str(data.get("address") or ""),
            capabilities=tuple(map(str, data.get("capabilities") or ())),
            groups=tuple(map(str, data.get("groups") or ())),
            memlock=bool(data.get("memlock")),
            layer_limit_bytes=int(data.get("layer_limit_bytes") or 0),
            notices=tuple(map(str, data.get("notices") or ())),
            entrypoint=tuple(map(str, data.get("entrypoint") or ())),
            volumes=_texts(data.get("volumes")),
            enforcement=_texts(data.get("enforcement")),
            script_seconds=int(data.get("script_seconds") or 0),
            devices=tuple(data.get("devices") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        data = _shallow(self)
        data["mounts"] = [mount.to_json() for mount in self.mounts]
        if not self.address:
            del data["address"]
        if not self.layer_limit_bytes:
            del data["layer_limit_bytes"]
        if not self.entrypoint:
            del data["entrypoint"]
        if not self.volumes:
            del data["volumes"]
        if not self.script_seconds:
            del data["script_seconds"]
        return data


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Launch plan of one kernel.

    ``slots`` are integers in the units of the database (millicores, bytes). Sources of mounts
    are on the agent's machine.
    """

    session_id: str
    kernel_id: str
    agent_id: str
    name: str
    user: str
    engine: str
    endpoint: str
    image: str
    command: tuple[str, ...]
    uid: int
    gid: int
    hostname: str
    slots: Mapping[str, int]
    shared_memory_bytes: int
    mounts: tuple[Mount, ...]
    environ: Mapping[str, str]
    injection: Injection
    labels: Mapping[str, str]
    # For cluster sessions: the plans of the sub kernels, and a key pair for SSH between kernels.
    subs: tuple[LaunchPlan, ...] = ()
    cluster_key: Mapping[str, str] = field(default_factory=dict)
    # Name of the Hub server; empty for the user's default server.
    server: str = ""
    is_superadmin: bool = False
    # The kernel already runs: start only a Jupyter server in it.
    is_attached: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchPlan:
        """Parse the response of ``POST /sessions/{id}/launch``.

        Raises
        ------
        InvalidRequest
            If a required field is missing, the id of the session or a kernel is not a UUID, a
            number is invalid, or a mount has an invalid path.
        """
        try:
            session_id = str(uuid.UUID(str(data["session_id"])))
            kernel_id = str(uuid.UUID(str(data["kernel_id"])))
            return cls(
                session_id=session_id,
                kernel_id=kernel_id,
                agent_id=str(data["agent_id"]),
                name=str(data["name"]),
                user=str(data["user"]),
                engine=str(data["engine"]),
                endpoint=str(data.get("endpoint") or ""),
                image=str(data.get("image") or ""),
                command=tuple(data.get("command") or ()),
                uid=int(data["uid"]),
                gid=int(data["gid"]),
                hostname=str(data.get("hostname") or MAIN_HOST),
                slots={slot: int(amount) for slot, amount in (data.get("slots") or {}).items()},
                shared_memory_bytes=int(data.get("shared_memory_bytes") or 0),
                mounts=tuple(Mount.from_json(mount) for mount in data.get("mounts") or ()),
                environ=_texts(data.get("environ")),
                injection=Injection.from_json(data.get("injection") or {}),
                labels=_texts(data.get("labels")),
                subs=tuple(cls.from_json(sub) for sub in data.get("subs") or ()),
                cluster_key=_texts(data.get("cluster_key")),
                server=str(data.get("server") or ""),
                is_superadmin=bool(data.get("is_superadmin")),
                is_attached=bool(data.get("is_attached")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"the launch plan cannot be parsed: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the plan in the format of ``from_json``; plans of sub kernels have no ``subs``."""
        subs = [sub.to_json() for sub in self.subs]
        return {
            **_shallow(self),
            "command": list(self.command) or None,
            "mounts": [mount.to_json() for mount in self.mounts],
            "injection": self.injection.to_json(),
            "subs": [{k: v for k, v in sub.items() if k != "subs"} for sub in subs],
            "cluster_key": dict(self.cluster_key) or None,
        }

    @property
    def is_cluster(self) -> bool:
        return bool(self.cluster_key)

    @property
    def cluster_hosts(self) -> tuple[str, ...]:
        """The host names of all kernels of a cluster session."""
        return tuple(filter(None, self.environ.get("BAI_CLUSTER_HOSTS", "").split(",")))

    @property
    def all_mounts(self) -> tuple[Mount, ...]:
        """The mounts of folders and devices, outer paths first."""
        mounts = (*self.injection.mounts, *self.mounts)
        return tuple(sorted(mounts, key=lambda m: len(PurePosixPath(m.target).parts)))

    @property
    def marks(self) -> dict[str, str]:
        """Environment variables by which the agent identifies the session's processes."""
        return {
            "BAI_SESSION_ID": self.session_id,
            "BAI_KERNEL_ID": self.kernel_id,
            "BAI_AGENT_ID": self.agent_id,
        }


def _shallow(plan: Injection | LaunchPlan) -> dict[str, Any]:
    """Return the fields in JSON format, without converting nested dataclasses."""
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _texts(data: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (data or {}).items()}
