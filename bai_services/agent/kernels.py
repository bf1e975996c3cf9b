"""Observed kernels, and the work items that the manager sends for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bai_services import tracing
from bai_services.core.cluster.image_store import RegistryAuth, read_auth
from bai_services.core.errors import InvalidRequest
from bai_services.core.names import check_username
from bai_services.core.sessions.kernel_group import MAIN_HOST, folder_name
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.setup import SessionSetup

_HOSTNAME = re.compile(r"(main|sub)[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on this machine.

    ``exit_code`` is None while the kernel runs, or if the exit code is unknown.
    ``is_out_of_memory``: a process was killed because of the memory limit. ``is_kept``: the kernel
    is removed, but its home and log remain for the next run of the session.
    ``fenced_attempt``: the attempt in which the agent has stopped the kernel, because it could not
    reach the manager.
    """

    kernel_id: str
    session_id: str
    container_id: str = ""
    is_running: bool = False
    exit_code: int | None = None
    is_out_of_memory: bool = False
    usage: Mapping[str, Any] | None = None
    is_kept: bool = False
    fenced_attempt: int | None = None

    def to_report(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The part of one device that is allocated to a kernel; ``amount`` is in thousandths."""

    id: str
    amount: int
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster session that a kernel belongs to: its network, and whether it spans machines."""

    network: str
    is_spread: bool = False  # its kernels are on more than one machine

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cluster:
        return cls(network=str(data["network"]), is_spread=bool(data.get("is_spread")))


@dataclass(frozen=True, slots=True)
class Task:
    """One work item.

    Session id, kernel id and host name are validated, because they become names of folders and
    containers. ``attempt`` is the number of the session's run; only work items of the kind
    ``launch`` have a ``plan``. ``trace`` is the span of the session's start. ``fence_seconds``: see
    ``agent/fence.py``.
    """

    id: str
    kind: str
    session_id: str
    kernel_id: str
    image: str = ""
    user: str = ""
    uid: int = 0
    gid: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[DeviceShare, ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    hostname: str = MAIN_HOST
    cluster: Cluster | None = None
    setup: SessionSetup = field(default_factory=SessionSetup)
    registry_auth: RegistryAuth | None = None
    attempt: int = 0
    plan: LaunchPlan | None = None
    trace: str | None = None
    fence_seconds: int | None = None

    @property
    def folder(self) -> str:
        """The name of the kernel's folder on this machine."""
        return folder_name(self.session_id, self.hostname)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Task:
        """Return the work item that an entry of the manager's response describes.

        Raises
        ------
        InvalidRequest
            If the session or kernel id is not a UUID, or the format differs from docs/protocols.md.
        """
        try:
            return cls(
                id=str(item["id"]),
                kind=str(item["kind"]),
                session_id=str(uuid.UUID(str(item["session_id"]))),
                kernel_id=str(uuid.UUID(str(item["kernel_id"]))),
                image=str(item.get("image") or ""),
                user=check_username(str(item["user"])) if item.get("user") else "",
                uid=int(item.get("uid") or 0),
                gid=int(item.get("gid") or 0),
                slots={slot: int(n) for slot, n in (item.get("slots") or {}).items()},
                devices=tuple(
                    DeviceShare(str(d["id"]), int(d["amount"]), str(d.get("slot") or ""))
                    for d in item.get("devices") or ()
                ),
                mounts=tuple(item.get("mounts") or ()),
                hostname=_check_hostname(str(item.get("hostname") or MAIN_HOST)),
                cluster=Cluster.from_json(item["cluster"]) if item.get("cluster") else None,
                setup=SessionSetup.from_json(item["setup"])
                if item.get("setup")
                else SessionSetup(),
                registry_auth=read_auth(item),
                attempt=int(item.get("attempt") or 0),
                plan=LaunchPlan.from_json(item["plan"]) if item.get("plan") else None,
                trace=tracing.valid(item.get(tracing.HEADER)),
                fence_seconds=int(item["fence_seconds"]) if item.get("fence_seconds") else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"a work item cannot be parsed: {error!r}") from error

    def to_report(self, state: str, **facts: Any) -> dict[str, Any]:
        """Return the report on this work item; ``state`` is progress, done or failed."""
        return {
            "work_id": self.id,
            "kind": self.kind,
            "session_id": self.session_id,
            "kernel_id": self.kernel_id,
            "state": state,
            **facts,
        }


def _check_hostname(text: str) -> str:
    """Return ``text`` if it is a valid host name of a kernel, else raise ``ValueError``.

    The host name becomes part of the names of folders and containers.
    """
    if not _HOSTNAME.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a valid kernel host name")
    return text
