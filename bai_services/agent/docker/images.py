"""Images of this machine; concurrent requests for one image share one pull."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import docker

from bai_services.core.errors import BaiError, NotFound, StorageFull, Unavailable

from ..engine import Tell
from .calls import DockerCalls

MISSING = 404
PULL = "pull"


class Progress:
    """Progress of a pull, computed from the lines that Docker sends for each layer."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}
        self._ready: set[str] = set()

    def read(self, line: Mapping[str, Any]) -> int | None:
        """Process one line and return the percentage; None while no size is known.

        A downloaded layer counts half, an extracted one fully.
        """
        layer, status = str(line.get("id") or ""), str(line.get("status") or "")
        detail = line.get("progressDetail") or {}
        current, total = int(detail.get("current") or 0), int(detail.get("total") or 0)
        if total and status == "Downloading":
            self._layers[layer] = (current, 2 * total)
        elif total and status == "Extracting":
            self._layers[layer] = (total + current, 2 * total)
        elif status in ("Pull complete", "Already exists"):
            self._ready.add(layer)
        done = sum(
            whole if layer in self._ready else have for layer, (have, whole) in self._layers.items()
        )
        whole = sum(whole for _, whole in self._layers.values())
        return min(99, 100 * done // whole) if whole else None


class Images:
    """Lists and pulls images; concurrent requests share one pull, which blocks nothing else."""

    def __init__(self, calls: DockerCalls) -> None:
        self._calls = calls
        self._pulls: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, list[Tell]] = {}

    async def ensure(self, name: str, tell: Tell) -> None:
        """Return when the image is on the machine.

        Raises
        ------
        NotFound
            If no registry has it, or the registry requires a sign-in.
        Unavailable
            If the registry or the engine does not answer.
        StorageFull
            If it does not fit on the disk.
        """
        if await self._calls.run("look", lambda client: _is_here(client, name)):
            return
        pull = self._pulls.get(name)
        if pull is None:
            pull = self._pulls[name] = asyncio.create_task(self._pull(name), name=f"pull {name}")
            pull.add_done_callback(lambda _: self._forget(name))
        self._listeners.setdefault(name, []).append(tell)
        tell(PULL, f"pulling image {name}", None)
        # A caller that is cancelled must not cancel the pull for the others.
        await asyncio.shield(pull)

    async def names(self) -> list[str]:
        """Return the names of all images, sorted; [] if the engine does not answer."""
        try:
            found = await self._calls.run("look", lambda client: client.images())
        except (Unavailable, docker.errors.APIError):
            return []
        return sorted({tag for image in found for tag in image.get("RepoTags") or ()} - {NO_NAME})

    async def close(self) -> None:
        """Stop waiting for pulls; the engine finishes them by itself."""
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    def _forget(self, name: str) -> None:
        pull = self._pulls.pop(name, None)
        self._listeners.pop(name, None)
        if pull is not None and not pull.cancelled():
            # All callers may be cancelled; then nobody reads the error, and asyncio would log it.
            pull.exception()

    async def _pull(self, name: str) -> None:
        loop = asyncio.get_running_loop()

        def tell(percent: int | None) -> None:
            for listener in self._listeners.get(name, ()):
                listener(PULL, f"pulling image {name}", percent)

        def pull(client: docker.APIClient) -> None:
            repository, tag = docker.utils.parse_repository_tag(name)
            progress, last = Progress(), None
            lines = client.pull(repository, tag=tag or "latest", stream=True, decode=True)
            for line in lines:
                if "error" in line:
                    raise failure(name, str(line["error"]))
                percent = progress.read(line)
                if percent != last:
                    last = percent
                    loop.call_soon_threadsafe(tell, percent)

        try:
            await self._calls.run("pull", pull)
        except docker.errors.APIError as error:
            raise failure(name, str(error.explanation or error)) from error


NO_NAME = "<none>:<none>"

_UNREACHABLE = (
    "no such host",
    "timeout",
    "timed out",
    "connection refused",
    "network is unreachable",
    "temporary failure",
    "dial tcp",
    "tls handshake",
    "proxyconnect",
    "server misbehaving",
    "eof",
)


def failure(name: str, text: str) -> BaiError:
    """Return the error for the user that corresponds to a refusal of Docker."""
    low = text.lower()
    if "no space left" in low:
        return StorageFull(f"image {name} does not fit on the disk of its machine", image=name)
    if any(word in low for word in _UNREACHABLE):
        return Unavailable(
            f"image {name} is not on the machine and its registry does not answer: {text[:300]}",
            image=name,
        )
    return NotFound(
        f"image {name} is not on the machine and cannot be pulled: {text[:300]}", image=name
    )


def _is_here(client: docker.APIClient, name: str) -> bool:
    try:
        client.inspect_image(name)
    except docker.errors.APIError as error:
        if error.status_code == MISSING:
            return False
        raise
    return True
