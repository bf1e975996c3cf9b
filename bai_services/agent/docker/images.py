"""Images of this machine: list, pull with progress, remove; messages for errors of a pull."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import docker

from bai_services.core.cluster.image_store import (
    PruneRequest,
    RegistryAuth,
    StoredImage,
    choose_evictions,
    choose_unused,
)
from bai_services.core.errors import BaiError, NotFound, StorageFull, Unavailable

from ..engine import ReportProgress
from .calls import DockerCalls
from .image_uses import ImageUses

log = logging.getLogger(__name__)

NOT_FOUND_STATUS = 404
CONFLICT_STATUS = 409
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
    """Lists, pulls and removes images.

    Concurrent calls of ``ensure`` for one image share one pull (single-flight); each call of
    ``pull`` starts its own.
    """

    def __init__(self, calls: DockerCalls, uses: ImageUses) -> None:
        self._calls = calls
        self._uses = uses
        self._pulls: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, list[ReportProgress]] = {}

    async def ensure(
        self, name: str, report_progress: ReportProgress, auth: RegistryAuth | None = None
    ) -> None:
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
        # Record the use first, so that the image is not evicted before its container is created.
        await asyncio.to_thread(self._uses.record, name)
        if await self._calls.run("query", lambda client: _is_present(client, name)):
            return
        pull = self._pulls.get(name)
        if pull is None:
            pull = self._pulls[name] = asyncio.create_task(
                self._pull(name, auth), name=f"pull {name}"
            )
            pull.add_done_callback(lambda _: self._remove_pull(name))
        self._listeners.setdefault(name, []).append(report_progress)
        report_progress(PULL, f"pulling image {name}", None)
        # The cancellation of one caller must not cancel the pull for the others.
        await asyncio.shield(pull)

    async def digests(self) -> dict[str, str]:
        """Return the digest of each image by name, empty if the image was not pulled.

        Return {} if the engine does not respond.
        """
        try:
            found = await self._calls.run("query", lambda client: client.images())
        except (Unavailable, docker.errors.APIError):
            return {}
        return {
            name: digest_of(name, image.get("RepoDigests") or ())
            for image in found
            for name in sorted(image.get("RepoTags") or ())
            if name != NO_NAME
        }

    async def pull(
        self,
        name: str,
        digest: str,
        report_progress: ReportProgress,
        auth: RegistryAuth | None = None,
    ) -> Mapping[str, Any]:
        """Pull an image (see ``Engine.pull_image``); a cancellation stops the pull."""
        loop, cancelled = asyncio.get_running_loop(), threading.Event()

        def progress(percent: int | None) -> None:
            loop.call_soon_threadsafe(report_progress, PULL, f"pulling image {name}", percent)

        def pull(client: docker.APIClient) -> Mapping[str, Any]:
            repository, tag = docker.utils.parse_repository_tag(name)
            in_registry = _registry_digest(client, name, auth)
            reference = repository, digest or tag or "latest"
            _read_pull(client, name, reference, progress, cancelled, auth)
            if digest:
                client.tag(f"{repository}@{digest}", repository, tag or "latest", force=True)
            image = client.inspect_image(name)
            return {
                "digest": digest or digest_of(name, image.get("RepoDigests") or ()),
                "registry_digest": in_registry,
                "size_bytes": int(image.get("Size") or 0),
            }

        await asyncio.to_thread(self._uses.record, name)
        try:
            return await self._calls.run("pull", pull)
        except docker.errors.APIError as error:
            raise pull_error(name, str(error.explanation or error)) from error
        finally:
            cancelled.set()

    async def record_use(self, name: str) -> None:
        """Record that an image is used now; images that were never used are not evicted."""
        await asyncio.to_thread(self._uses.record, name)

    async def forget(self, name: str) -> None:
        """Forget the uses of an image that no longer exists."""
        await asyncio.to_thread(self._uses.forget, {name})

    async def evict(self) -> None:
        """Remove the least recently used images while the images exceed their limit."""
        if not self._uses.limit_bytes:
            return
        started_at = time.time()
        try:
            stored, used_bytes = await self._calls.run("query", self._stored)
            chosen = choose_evictions(
                stored.values(), used_bytes, self._uses.limit_bytes, started_at
            )
            for image_id in chosen:
                names = await self._calls.run("change", self._remover(image_id, started_at))
                await asyncio.to_thread(self._uses.forget, set(names))
                if names:
                    log.info("evicted image %s: images exceed their limit", ", ".join(names))
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("unused images cannot be evicted: %s", error)

    async def prune(self, request: PruneRequest) -> list[dict[str, Any]]:
        """Remove the images that a request selects, or only list them (``Engine.prune_images``)."""
        started_at = time.time()
        try:
            stored, _ = await self._calls.run("query", self._stored)
            pruned = []
            for image in choose_unused(stored.values(), request, started_at):
                removed: list[str] = []
                if not request.is_dry_run:
                    remover = self._remover(image.id, started_at)
                    removed = await self._calls.run("change", remover)
                    await asyncio.to_thread(self._uses.forget, set(removed))
                    if removed:
                        log.info("removed image %s: it was unused", ", ".join(removed))
                pruned += [
                    {
                        "image": name,
                        "size_bytes": image.size_bytes,
                        "last_used": image.last_used,
                        "is_removed": name in removed,
                    }
                    for name in sorted(image.names)
                ]
            return pruned
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine cannot list or remove images: {error.explanation}"
            ) from error

    async def discard(self, name: str) -> None:
        """Remove an image, if this agent has used it (``Engine.discard_image``)."""
        started_at = time.time()
        if name not in self._uses.times:
            return
        try:
            removed = await self._calls.run("change", self._remover(name, started_at))
        except docker.errors.ImageNotFound:
            removed = [name]
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine cannot remove image {name}: {error.explanation}"
            ) from error
        await asyncio.to_thread(self._uses.forget, set(removed))

    def _stored(self, client: docker.APIClient) -> tuple[dict[str, StoredImage], int]:
        """Return the images by id, and the size of all layers in bytes."""
        usage, times = client.df(), self._uses.times
        used_ids = {str(c["ImageID"]) for c in client.containers(all=True)}
        images = {
            str(image["Id"]): StoredImage(
                str(image["Id"]),
                int(image.get("Size") or 0),
                max((times[n] for n in image.get("RepoTags") or () if n in times), default=None),
                has_containers=str(image["Id"]) in used_ids,
                names=[name for name in image.get("RepoTags") or () if name != NO_NAME],
                is_pulled=bool(image.get("RepoDigests")),
            )
            for image in usage.get("Images") or ()
        }
        return images, int(usage.get("LayersSize") or 0)

    def _remover(self, image_id: str, chosen_at: float) -> Callable[[docker.APIClient], list[str]]:
        """Return a function that removes an image with all its names, and returns these names.

        An image that a container uses, or that was used after ``chosen_at``, is kept, because a
        session may be about to start; then the function returns an empty list.
        """

        def remove(client: docker.APIClient) -> list[str]:
            names: list[str] = list(client.inspect_image(image_id).get("RepoTags") or ())
            times = self._uses.times
            if any(times.get(name, 0.0) >= chosen_at for name in names):
                return []
            try:
                # Do not use force: Docker then refuses to remove an image that a container uses.
                for name in names or [image_id]:
                    client.remove_image(name, noprune=False)
            except docker.errors.APIError as error:
                if error.status_code not in (NOT_FOUND_STATUS, CONFLICT_STATUS):
                    raise
                return []
            return names

        return remove

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

    async def _pull(self, name: str, auth: RegistryAuth | None) -> None:
        loop = asyncio.get_running_loop()

        def notify_listeners(percent: int | None) -> None:
            for report_progress in self._listeners.get(name, ()):
                report_progress(PULL, f"pulling image {name}", percent)

        def pull(client: docker.APIClient) -> None:
            repository, tag = docker.utils.parse_repository_tag(name)
            _read_pull(
                client,
                name,
                (repository, tag or "latest"),
                lambda percent: loop.call_soon_threadsafe(notify_listeners, percent),
                threading.Event(),
                auth,
            )

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


def digest_of(name: str, repository_digests: Iterable[str]) -> str:
    """Return the registry digest of a pulled image; empty if the image was not pulled."""
    repository, _ = docker.utils.parse_repository_tag(name)
    prefix = f"{repository}@"
    return next((d.removeprefix(prefix) for d in repository_digests if d.startswith(prefix)), "")


def auth_config(auth: RegistryAuth | None) -> dict[str, str] | None:
    """Return the credentials for one call of Docker, which sends them in a header."""
    return None if auth is None else {"username": auth.username, "password": auth.password}


def _registry_digest(client: docker.APIClient, name: str, auth: RegistryAuth | None) -> str:
    """Return the digest that the tag has in its registry now; empty if it cannot be read."""
    try:
        found = client.inspect_distribution(name, auth_config=auth_config(auth))
        return str(found["Descriptor"]["digest"])
    except (docker.errors.APIError, KeyError, TypeError):
        return ""


def _read_pull(
    client: docker.APIClient,
    name: str,
    reference: tuple[str, str],
    report_percent: Callable[[int | None], object],
    cancelled: threading.Event,
    auth: RegistryAuth | None,
) -> None:
    """Pull ``reference`` (repository, and tag or digest).

    If ``cancelled`` is set, the next line of the stream raises an error. That closes the stream,
    and the engine stops the pull.
    """
    repository, tag = reference
    progress, last = Progress(), None
    lines = client.pull(
        repository, tag=tag, stream=True, decode=True, auth_config=auth_config(auth)
    )
    for line in lines:
        if cancelled.is_set():
            raise NotFound(f"the pull of image {name} was cancelled", image=name)
        if "error" in line:
            raise pull_error(name, str(line["error"]))
        percent = progress.read(line)
        if percent != last:
            last = percent
            report_percent(percent)


def _is_present(client: docker.APIClient, name: str) -> bool:
    try:
        client.inspect_image(name)
    except docker.errors.APIError as error:
        if error.status_code == NOT_FOUND_STATUS:
            return False
        raise
    return True
