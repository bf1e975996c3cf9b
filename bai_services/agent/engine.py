"""Interface of the engines that observe, prepare and remove sessions on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.image_store import PruneRequest, RegistryAuth
from bai_services.core.errors import NotFound

from .kernels import Kernel, Task

# Called in the event loop with the stage, a message, and a percentage or None.
ReportProgress = Callable[[str, str, int | None], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """Additions to a session whose image lacks the platform's parts."""

    entrypoint: tuple[str, ...]
    environ: Mapping[str, str]
    volume: str
    """Docker volume with the parts."""
    passwd: str
    group: str
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The engine's part of the injection of a kernel."""

    network: str = ""
    address: str = ""
    """This machine's address on which the container's port is published; empty: not published."""
    uid: int | None = None
    """Owner of the home directory; None: the user of this process."""
    gid: int | None = None
    notices: tuple[str, ...] = ()
    """Notices for the session's user about this machine."""
    layer_limit_bytes: int = 0
    """Size limit that Docker enforces for the container's writable layer; 0: none."""
    parts: Parts | None = None
    """Parts of the platform that the image lacks."""


class Engine(ABC):
    """Observes, prepares and removes kernels; the spawner starts them."""

    name: str
    endpoint: str = ""

    @abstractmethod
    async def facts(self) -> dict[str, Any]:
        """Return ``isolation`` and ``notices``; for Docker also versions and ``egress``."""

    @abstractmethod
    async def observe(self) -> list[Kernel] | None:
        """Return all kernels of this agent, running or ended; None if the engine does not
        respond.
        """

    @abstractmethod
    async def prepare(self, task: Task, report_progress: ReportProgress) -> Prepared:
        """Prepare a kernel's image and network; return the data that its start requires.

        Idempotent.

        Raises
        ------
        BaiError
            If the preparation fails; the message is shown to the user.
        """

    @abstractmethod
    async def remove(self, task: Task) -> None:
        """Stop and remove the remaining processes or container of a kernel; idempotent."""

    @abstractmethod
    async def resize(self, task: Task) -> None:
        """Apply the cpu and memory in ``task.slots`` to a running kernel; idempotent.

        Raises
        ------
        Conflict
            If the kernel uses more memory than it would have; the previous limits remain.
        NotFound
            If the kernel does not run.
        """

    async def stop(self, task: Task) -> None:
        """Stop a kernel; unlike ``remove``, keep its output.

        Raises
        ------
        Unavailable
            If the engine does not respond.
        """
        await self.remove(task)

    @abstractmethod
    async def log(self, task: Task) -> str | None:
        """Return the end of a kernel's output; None if the kernel has no output."""

    async def is_network_full(self) -> bool:
        """Return whether no further network of sessions can be created."""
        return False

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        """Return the session id by pid, for those processes that belong to a session."""
        return {}

    async def writable_layer(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        """Return the parts of a kernel's writable layer, for measuring its size.

        The result is the directories to measure, and the size in bytes of the data outside them.
        Home and folders are not included.
        """
        return (), 0

    def layer_limit(self) -> str:
        """Return how the layer's size is limited: ``enforced``, ``watched``, ``unknown`` or
        ``none``.
        """
        return "none"

    def allow_url(self, url: str) -> None:
        """Let sessions reach the address of a URL, if the engine restricts their network."""
        return None

    async def images(self) -> Mapping[str, str]:
        """Return the images on this machine: the digest by name, empty if it is unknown."""
        return {}

    async def pull_image(
        self,
        name: str,
        digest: str,
        report_progress: ReportProgress,
        auth: RegistryAuth | None = None,
    ) -> Mapping[str, Any]:
        """Pull an image; a ``digest`` selects exactly that version. Return its ``digest``,
        ``registry_digest`` (of the tag in the registry now) and ``size_bytes``.

        Raises
        ------
        BaiError
            If the pull fails, or this engine has no images.
        """
        raise NotFound("this engine runs no images")

    async def prune_images(self, request: PruneRequest) -> Sequence[Mapping[str, Any]]:
        """Remove unused images, or only list them; return them with ``image``, ``size_bytes``,
        ``last_used`` (seconds since the epoch) and ``is_removed``.

        Raises
        ------
        Unavailable
            If the engine does not respond.
        """
        return ()

    async def image_sbom(self, name: str) -> bytes:
        """Return the SBOM of an image on this machine.

        Raises
        ------
        NotFound
            If the image is not on this machine, or has no SBOM.
        Unavailable
            If the engine does not respond.
        """
        raise NotFound("this engine runs no images")

    async def commit(
        self, request: CommitRequest, report_progress: ReportProgress
    ) -> Mapping[str, Any]:
        """Make an image from a running kernel; return its ``digest`` and ``size_bytes``.

        Mounted folders, and the variables of the session, are not part of the image.

        Raises
        ------
        BaiError
            If the commit fails, or this engine has no images.
        """
        raise NotFound("this engine runs no images")

    async def discard_image(self, name: str) -> None:
        """Remove an image that the manager no longer knows, unless a container uses it or this
        agent has never used it.

        Raises
        ------
        Unavailable
            If the engine does not respond.
        """
        return None

    async def remove_unused(self) -> None:
        """Remove resources that have been unused for a long time; called periodically."""
        return None

    async def close(self) -> None:
        return None
