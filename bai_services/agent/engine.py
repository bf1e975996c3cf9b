"""Interface of engines that run sessions on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .kernels import Kernel, Task

# Called from the event loop with the stage, a sentence, and a percentage or None.
Tell = Callable[[str, str, int | None], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The engine's part of the injection; ``uid`` None leaves the home to this process's user."""

    network: str = ""
    uid: int | None = None
    gid: int | None = None
    notices: tuple[str, ...] = ()
    """Notices for the user about this machine."""
    layer_limit_bytes: int = 0
    """Size limit that Docker enforces for the container's writable layer; 0: none."""


class Engine(ABC):
    """Lists, prepares and removes sessions; the spawner starts them."""

    name: str
    endpoint: str = ""

    @abstractmethod
    async def facts(self) -> dict[str, Any]:
        """Return versions, ``isolation`` and ``notices``."""

    @abstractmethod
    async def observe(self) -> list[Kernel] | None:
        """Return all our kernels, running or ended; None if the engine does not answer."""

    @abstractmethod
    async def prepare(self, task: Task, tell: Tell) -> Prepared:
        """Prepare what a session needs before it starts; idempotent.

        Raises
        ------
        BaiError
            With a text for the user, if it fails.
        """

    @abstractmethod
    async def remove(self, task: Task) -> None:
        """Stop and remove what is left of a session; idempotent."""

    @abstractmethod
    async def log(self, task: Task) -> str | None:
        """Return the end of a session's output; None if there is none."""

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        """Return the session of each of these processes that belongs to one."""
        return {}

    async def writable(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        """Return the paths outside of home and folders that a kernel writes to, and the bytes
        that these paths do not cover.
        """
        return (), 0

    def layer_limit(self) -> str:
        """Return how the size of these files is limited: ``enforced``, ``watched``, ``none``."""
        return "none"

    def allow_url(self, url: str) -> None:
        """Allow sessions to reach an address that they need, if their network is restricted."""
        return None

    async def images(self) -> Sequence[str]:
        """Return the names of the machine's images."""
        return ()

    async def tidy(self) -> None:
        """Remove what has been unused for long; called from time to time."""
        return None

    async def close(self) -> None:
        return None
