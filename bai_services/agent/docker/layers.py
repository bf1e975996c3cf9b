"""Writable layers of containers: their directories, and whether Docker limits their size."""

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

# Storage drivers that can limit the size of a container, each on certain file systems only.
SIZED_DRIVERS = frozenset({"btrfs", "devicemapper", "overlay2", "zfs"})
# With these drivers the size limit includes the image.
DRIVERS_COUNTING_IMAGE = frozenset({"btrfs"})


class Layers:
    """Locates writable layers of containers and detects whether Docker can limit their size."""

    def __init__(
        self, calls: DockerCalls, limit_bytes: int, reads_layers: bool | None = None
    ) -> None:
        """``limit_bytes``: 0 means no limit. ``reads_layers``: whether this process can read the
        layer directories; defaults to whether it runs as root.
        """
        self._calls = calls
        self._limit_bytes = limit_bytes
        self._supports_size: bool | None = None
        self._driver = ""
        self._paths: dict[str, tuple[Path, ...] | None] = {}
        self._reads_layers = os.geteuid() == 0 if reads_layers is None else reads_layers

    @property
    def level(self) -> str:
        """``enforced`` (by Docker), ``watched`` (by the agent) or ``unknown`` (before a probe)."""
        if self._supports_size is None:
            return "unknown"
        return "enforced" if self._supports_size else "watched"

    async def size_option(self, image: str) -> int:
        """Return Docker's option ``size`` for containers of an image, in bytes; 0: omit the option.

        The option is used if there is a limit and Docker supports the option. The support depends
        on the storage driver, the file system and its mount options. To detect the support, the
        first successful call creates a container with a size limit, and removes the container
        without starting it.
        """
        if not self._limit_bytes:
            return 0
        if self._supports_size is False:
            return 0
        try:
            size = await self._calls.run("query", lambda c: self._size_for(c, image))
            if self._supports_size is None:
                self._supports_size = await self._calls.run(
                    "change", lambda c: _probe_size_support(c, image, size)
                )
        except (Unavailable, docker.errors.APIError) as error:
            log.info("cannot detect yet whether layers can be limited: %s", error)
            return 0
        return size if self._supports_size else 0

    async def writable_layer(self, container_id: str) -> tuple[tuple[Path, ...], int]:
        """Return the directories with a container's writable data, and a size in bytes to add.

        If this process can read the directories, the caller measures them, and the size is 0.
        Otherwise there are no directories, and the size is the size of the layer that Docker
        reports.

        Raises
        ------
        Unavailable
            If the engine does not respond, rejects the request, or has no such container.
        """
        try:
            if container_id not in self._paths:
                self._paths[container_id] = await self._calls.run(
                    "query", lambda c: self._find(c, container_id)
                )
            paths = self._paths[container_id]
            if paths is not None:
                return paths, 0
            return (), await self._calls.run("query", lambda c: _size(c, container_id))
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine rejected the request: {error.explanation}"
            ) from error

    def retain(self, container_ids: Iterable[str]) -> None:
        """Drop the cached directories of all other containers."""
        self._paths = {key: self._paths[key] for key in set(container_ids) & self._paths.keys()}

    def _size_for(self, client: docker.APIClient, image: str) -> int:
        if not self._driver:
            self._driver = str(client.info().get("Driver"))
        if self._driver not in DRIVERS_COUNTING_IMAGE:
            return self._limit_bytes
        return self._limit_bytes + int(client.inspect_image(image).get("Size") or 0)

    def _find(self, client: docker.APIClient, container_id: str) -> tuple[Path, ...] | None:
        """Return the writable directories of a container; None if this process cannot read them."""
        info: dict[str, Any] = client.inspect_container(container_id)
        data = (info.get("GraphDriver") or {}).get("Data") or {}
        upper = data.get("UpperDir")
        if not upper or not self._reads_layers or not os.path.isdir(upper):
            return None
        volumes = [m["Source"] for m in info.get("Mounts") or () if m.get("Type") == "volume"]
        return tuple(Path(path) for path in (upper, *volumes))


def _probe_size_support(client: docker.APIClient, image: str, size: int) -> bool:
    """Return whether Docker accepts a container with a size limit."""
    if client.info().get("Driver") not in SIZED_DRIVERS:
        return False
    options = client.create_host_config(storage_opt={"size": str(size)})
    try:
        container = client.create_container(image, command=["true"], host_config=options)
    except docker.errors.APIError as error:
        log.info(
            "Docker cannot limit layer sizes on this file system; the agent monitors them: %s",
            error.explanation,
        )
        return False
    client.remove_container(container["Id"], force=True, v=True)
    return True


def _size(client: docker.APIClient, container_id: str) -> int:
    """Return the size of a container's layer in bytes; slow, because Docker walks all its files."""
    for container in client.containers(all=True, size=True, filters={"id": container_id}):
        # A missing size means 0, because Docker omits the size of an empty layer.
        return int(container.get("SizeRw") or 0)
    raise Unavailable(f"the Docker engine has no container {container_id}")
