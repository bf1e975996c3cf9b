"""What the agent needs of an engine that runs sessions on its machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .kernels import Kernel, Task

# Called from the event loop with the stage, a sentence and a percentage or None.
Tell = Callable[[str, str, int | None], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What of the injection is the engine's; ``uid`` None leaves the home to this process."""

    network: str = ""
    uid: int | None = None
    gid: int | None = None
    notices: tuple[str, ...] = ()
    """What the person should know of this machine."""
    layer_limit_bytes: int = 0
    """The size that the container's writable layer is limited to by Docker; 0: it is not."""


class Engine(ABC):
    """Sees, prepares and removes; starting sessions is the spawner's part."""

    name: str
    endpoint: str = ""

    @abstractmethod
    async def facts(self) -> dict[str, Any]:
        """Return versions, ``isolation`` and ``notices``."""

    @abstractmethod
    async def observe(self) -> list[Kernel] | None:
        """Return everything of ours, running or ended; None when the engine does not answer."""

    @abstractmethod
    async def prepare(self, task: Task, tell: Tell) -> Prepared:
        """Make ready what a session needs before it starts; twice is harmless.

        Raises
        ------
        BaiError
            With a text for the person, if it cannot be done.
        """

    @abstractmethod
    async def remove(self, task: Task) -> None:
        """End and remove whatever is left of a session; nothing left is harmless."""

    @abstractmethod
    async def log(self, task: Task) -> str | None:
        """Return the end of a session's output; None where there is none."""

    async def owners(self, pids: Collection[int]) -> Mapping[int, str]:
        """Return the session of each of these processes that belongs to one."""
        return {}

    async def writable(self, kernel: Kernel) -> tuple[Sequence[Path], int]:
        """Return where a kernel writes outside of its home and folders, and bytes beside these."""
        return (), 0

    def layer_limit(self) -> str:
        """Return how the size of that is limited: ``enforced``, ``watched``, ``none``."""
        return "none"

    def allow_url(self, url: str) -> None:
        """Let sessions reach an address that they need, where their network is restricted."""
        return None

    async def images(self) -> Sequence[str]:
        """Return the names of the images that the machine has."""
        return ()

    async def tidy(self) -> None:
        """Remove what nobody has used for long; called now and then."""
        return None

    async def close(self) -> None:
        return None
