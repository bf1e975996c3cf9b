"""Images of this machine: list, pull with progress, translate errors of a pull."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import docker

from bai_services.core.errors import BaiError, NotFound, StorageFull, Unavailable

from ..engine import ReportProgress
from .calls import DockerCalls

NOT_FOUND_STATUS = 404
PULL = "pull"


class Progress:
    """Progress of a pull, computed from the lines that Docker sends for each layer."""

    def __init__(self) -> None:
        # Completed and total work by layer, in bytes.
        self._layers: dict[str, tuple[int, int]] = {}
        self._ready: set[str] = set()

    def read(self, line: Mapping[str, Any]) -> int | None:
        """Process one line and return the overall percentage; None while no size is known.

        The download of a layer is one half of its progress, its extraction the other half.
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
            layer_total if layer in self._ready else layer_done
            for layer, (layer_done, layer_total) in self._layers.items()
        )
        total = sum(layer_total for _, layer_total in self._layers.values())
        return min(99, 100 * done // total) if total else None


class Images:
    """Lists and pulls images; concurrent requests for one image share one pull (single-flight)."""

    def __init__(self, calls: DockerCalls) -> None:
        self._calls = calls
        self._pulls: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, list[ReportProgress]] = {}

    async def ensure(self, name: str, report_progress: ReportProgress) -> None:
        """Pull the image unless it is on the machine already.

        Raises
        ------
        NotFound
            If the registry lacks the image or requires credentials, or the pull fails for any
            other reason.
        Unavailable
            If the registry or the engine does not respond.
        StorageFull
            If the image does not fit on the disk.
        """
        if await self._calls.run("query", lambda client: _is_present(client, name)):
            return
        pull = self._pulls.get(name)
        if pull is None:
            pull = self._pulls[name] = asyncio.create_task(self._pull(name), name=f"pull {name}")
            pull.add_done_callback(lambda _: self._remove_pull(name))
        self._listeners.setdefault(name, []).append(report_progress)
        report_progress(PULL, f"pulling image {name}", None)
        # The cancellation of one caller must not cancel the pull for the others.
        await asyncio.shield(pull)

    async def names(self) -> list[str]:
        """Return the names of all images, sorted; [] if the engine does not respond."""
        try:
            found = await self._calls.run("query", lambda client: client.images())
        except (Unavailable, docker.errors.APIError):
            return []
        return sorted({tag for image in found for tag in image.get("RepoTags") or ()} - {NO_NAME})

    async def close(self) -> None:
        """Stop waiting for pulls; the engine may still finish them."""
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    def _remove_pull(self, name: str) -> None:
        pull = self._pulls.pop(name, None)
        self._listeners.pop(name, None)
        if pull is not None and not pull.cancelled():
            # Mark the exception as retrieved; otherwise asyncio logs it if every caller was
            # cancelled.
            pull.exception()

    async def _pull(self, name: str) -> None:
        loop = asyncio.get_running_loop()

        def notify_listeners(percent: int | None) -> None:
            for report_progress in self._listeners.get(name, ()):
                report_progress(PULL, f"pulling image {name}", percent)

        def pull(client: docker.APIClient) -> None:
            repository, tag = docker.utils.parse_repository_tag(name)
            progress, last = Progress(), None
            lines = client.pull(repository, tag=tag or "latest", stream=True, decode=True)
            for line in lines:
                if "error" in line:
                    raise pull_error(name, str(line["error"]))
                percent = progress.read(line)
                if percent != last:
                    last = percent
                    loop.call_soon_threadsafe(notify_listeners, percent)

        try:
            await self._calls.run("pull", pull)
        except docker.errors.APIError as error:
            raise pull_error(name, str(error.explanation or error)) from error


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


def pull_error(name: str, text: str) -> BaiError:
    """Convert Docker's error message of a failed pull to an error for the user."""
    low = text.lower()
    if "no space left" in low:
        return StorageFull(f"image {name} does not fit on the disk of the machine", image=name)
    if any(word in low for word in _UNREACHABLE):
        return Unavailable(
            f"image {name} is not on the machine and its registry does not respond: {text[:300]}",
            image=name,
        )
    return NotFound(
        f"image {name} is not on the machine and cannot be pulled: {text[:300]}", image=name
    )


def _is_present(client: docker.APIClient, name: str) -> bool:
    try:
        client.inspect_image(name)
    except docker.errors.APIError as error:
        if error.status_code == NOT_FOUND_STATUS:
            return False
        raise
    return True
