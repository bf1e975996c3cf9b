"""Writable layers of containers: their location, and whether Docker limits their size."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import docker

from bai_services.core.errors import Unavailable

from .calls import DockerCalls

log = logging.getLogger(__name__)

# Drivers that may support a size per container, each only on certain file systems.
SIZED_DRIVERS = frozenset({"btrfs", "devicemapper", "overlay2", "zfs"})
# With these drivers the size includes the image.
COUNTS_IMAGE = frozenset({"btrfs"})


class Layers:
    """Finds the files that a container has written, and determines once whether Docker limits
    them.
    """

    def __init__(
        self, calls: DockerCalls, limit_bytes: int, reads_layers: bool | None = None
    ) -> None:
        """``limit_bytes`` 0: no limit; ``reads_layers`` None: True for root."""
        self._calls = calls
        self._limit_bytes = limit_bytes
        self._takes_size: bool | None = None
        self._driver = ""
        self._paths: dict[str, tuple[Path, ...] | None] = {}
        self._reads_layers = os.geteuid() == 0 if reads_layers is None else reads_layers

    @property
    def level(self) -> str:
        """How the limit is enforced: ``enforced``, ``watched``, or ``unknown`` before the first
        try.
        """
        if self._takes_size is None:
            return "unknown"
        return "enforced" if self._takes_size else "watched"

    async def limit_for(self, image: str) -> int:
        """Return the size option for a container of an image; 0 if the driver supports none.

        Determined by creating a container with a size, which is never started: whether a driver
        supports one depends on the underlying file system and its mount options.
        """
        if not self._limit_bytes:
            return 0
        if self._takes_size is False:
            return 0
        try:
            size = await self._calls.run("look", lambda c: self._size_for(c, image))
            if self._takes_size is None:
                self._takes_size = await self._calls.run(
                    "change", lambda c: _takes_size(c, image, size)
                )
        except (Unavailable, docker.errors.APIError) as error:
            log.info("whether layers can be limited is not known yet: %s", error)
            return 0
        return size if self._takes_size else 0

    async def writable(self, container_id: str) -> tuple[tuple[Path, ...], int]:
        """Return directories that contain what a container wrote, and bytes in other places.

        Raises
        ------
        Unavailable
            If the engine does not answer.
        """
        try:
            if container_id not in self._paths:
                found = await self._calls.run("look", lambda c: self._find(c, container_id))
                self._paths[container_id] = found
            paths = self._paths[container_id]
            if paths is not None:
                return paths, 0
            return (), await self._calls.run("look", lambda c: _size(c, container_id))
        except docker.errors.APIError as error:
            raise Unavailable(f"the Docker engine refused: {error.explanation}") from error

    def forget(self, living: Iterable[str]) -> None:
        """Drop the data of containers that are gone."""
        self._paths = {key: self._paths[key] for key in set(living) & self._paths.keys()}

    def _size_for(self, client: docker.APIClient, image: str) -> int:
        if not self._driver:
            self._driver = str(client.info().get("Driver"))
        if self._driver not in COUNTS_IMAGE:
            return self._limit_bytes
        return self._limit_bytes + int(client.inspect_image(image).get("Size") or 0)

    def _find(self, client: docker.APIClient, container_id: str) -> tuple[Path, ...] | None:
        """Return the directories of a container; None if Docker must compute the size."""
        about: dict[str, Any] = client.inspect_container(container_id)
        data = (about.get("GraphDriver") or {}).get("Data") or {}
        upper = data.get("UpperDir")
        if not upper or not self._reads_layers or not os.path.isdir(upper):
            return None
        volumes = [m["Source"] for m in about.get("Mounts") or () if m.get("Type") == "volume"]
        return tuple(Path(path) for path in (upper, *volumes))


def _takes_size(client: docker.APIClient, image: str, size: int) -> bool:
    if client.info().get("Driver") not in SIZED_DRIVERS:
        return False
    options = client.create_host_config(storage_opt={"size": str(size)})
    try:
        made = client.create_container(image, command=["true"], host_config=options)
    except docker.errors.APIError as error:
        log.info("Docker cannot limit layers here, so they are watched: %s", error.explanation)
        return False
    client.remove_container(made["Id"], force=True, v=True)
    return True


def _size(client: docker.APIClient, container_id: str) -> int:
    """Return Docker's figure for the size of a container's layer; it walks all its files."""
    for found in client.containers(all=True, size=True, filters={"id": container_id}):
        return int(found.get("SizeRw") or 0)
    return 0
