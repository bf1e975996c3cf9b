"""Commits: images from the writable layers of containers, without the container's settings."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import json
import logging
import re
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import docker

from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.errors import BaiError, Conflict, NotFound, StorageFull, Unavailable
from bai_services.core.resources import MEM, format_amount

from ..engine import ReportProgress
from .builds import RunningStep, build_recipe
from .calls import DockerCalls
from .images import auth_config, digest_of

log = logging.getLogger(__name__)

COMMIT, BUILD, PUSH = "commit", "build", "push"
OUTPUT = "output"
# Docker's message if a registry responds with an error of the server.
SERVER_ERROR = re.compile(r"HTTP status: (5\d\d[ A-Za-z]*)")
# Fields of an image's configuration that a commit takes from the image of the session.
KEPT_FIELDS = (
    "Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "Shell", "StopSignal", "User",
    "Volumes", "WorkingDir",
)  # fmt: skip


async def commit(
    calls: DockerCalls,
    filters: Mapping[str, list[str]],
    request: CommitRequest,
    report_progress: ReportProgress,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Commit the container that ``filters`` find, or build the recipe from its image, and push the
    image if the request says so.

    ``variables``: environment variables for builds.

    Mounts are not part of a writable layer. The environment of the container has tokens and
    secrets, so the image gets the configuration of the session's image instead.

    Raises
    ------
    BaiError
        If the container does not run, the layer is too large, or the registry rejects the image.
        In these cases, and after a cancellation, no image remains on this machine.
    """
    loop, cancelled = asyncio.get_running_loop(), threading.Event()
    building = RunningStep(cancelled)

    def progress(stage: str, percent: int | None) -> None:
        loop.call_soon_threadsafe(report_progress, stage, request.image, percent)

    def output(text: str) -> None:
        loop.call_soon_threadsafe(report_progress, OUTPUT, text, None)

    def work(client: docker.APIClient) -> dict[str, Any]:
        progress(BUILD if request.recipe else COMMIT, None)
        if request.recipe:
            percent = functools.partial(progress, BUILD)
            made = _build(client, filters, request, variables, percent, output, building)
        else:
            made = _commit(client, filters, request)
        try:
            _require_wanted(cancelled)
            if request.is_pushed:
                _push(client, request, lambda percent: progress(PUSH, percent), cancelled)
            digests = client.inspect_image(request.image).get("RepoDigests") or ()
            _require_wanted(cancelled)
        except BaseException:
            _remove(client, request.image)
            raise
        return {"digest": digest_of(request.image, digests), **made}

    try:
        return await calls.run("build" if request.recipe else "commit", work)
    except docker.errors.APIError as error:
        text = str(error.explanation or error)
        if "no space left" in text.lower():
            raise StorageFull("the image does not fit on the disk of the machine") from error
        raise Unavailable(f"the Docker engine rejected the request: {text[:300]}") from error
    finally:
        cancelled.set()
        if request.recipe:
            # Cancel explicitly, because the thread of a cancelled build waits for output.
            with suppress(Unavailable):
                await calls.run("change", building.kill)


def _inspect(client: docker.APIClient, filters: Mapping[str, list[str]]) -> Any:
    found = client.containers(filters=dict(filters))
    if not found:
        raise NotFound("the session does not run on this machine")
    return client.inspect_container(found[0]["Id"])


def _build(
    client: docker.APIClient,
    filters: Mapping[str, list[str]],
    request: CommitRequest,
    variables: Mapping[str, str],
    report_percent: Callable[[int | None], object],
    report_output: Callable[[str], object],
    running: RunningStep,
) -> dict[str, Any]:
    """Build the recipe with the limits and the network of the session."""
    container = _inspect(client, filters)
    base = client.inspect_image(container["Image"])
    unnamed = build_recipe(
        client, request.recipe, container, variables, report_percent, report_output, running
    )
    try:
        made = client.inspect_image(unnamed)
        size = int(made.get("Size") or 0) - int(base.get("Size") or 0)
        _check_size(size, request.max_bytes)
        settings = {**(base.get("Config") or {}), "Env": (made.get("Config") or {}).get("Env")}
        client.load_image(_archive(made, {"Config": settings}, request))
    finally:
        # The images of the steps remain, because they are the cache of the next build.
        client.remove_image(unnamed, noprune=True)
    return {"size_bytes": int(made.get("Size") or 0)}


def _check_size(size: int, max_bytes: int) -> None:
    if max_bytes and size > max_bytes:
        raise Conflict(
            f"the session has changed {format_amount(MEM, size)} of its image; a commit may have "
            f"at most {format_amount(MEM, max_bytes)}"
        )


def _commit(
    client: docker.APIClient, filters: Mapping[str, list[str]], request: CommitRequest
) -> dict[str, Any]:
    container = _inspect(client, filters)
    base = client.inspect_image(container["Image"])
    _check_size(_layer_bytes(client, str(container["Id"])), request.max_bytes)
    names = (entry.partition("=")[0] for entry in container["Config"].get("Env") or ())
    # Docker copies those variables of the container that are not listed here, so list each variable
    # with an empty value. Only the temporary image has these variables.
    conf = {"Env": [f"{name}=" for name in names], "Labels": {}}
    unnamed = client.commit(container["Id"], conf=conf)["Id"]
    try:
        made = client.inspect_image(unnamed)
        client.load_image(_archive(made, base, request))
    finally:
        client.remove_image(unnamed, noprune=True)
    return {"size_bytes": int(made.get("Size") or 0)}


def _require_wanted(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise NotFound("the commit was cancelled")


def _remove(client: docker.APIClient, image: str) -> None:
    try:
        client.remove_image(image)
    except docker.errors.APIError as error:
        log.warning("image %s of a failed commit cannot be removed: %s", image, error.explanation)


def _layer_bytes(client: docker.APIClient, container_id: str) -> int:
    url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/json"
    response = client.get(url, params={"size": True}, timeout=client.timeout)
    response.raise_for_status()
    return int(response.json().get("SizeRw") or 0)


def _archive(made: Mapping[str, Any], base: Mapping[str, Any], request: CommitRequest) -> bytes:
    """Return an archive for `docker load`: the layers of ``made`` with the settings of ``base``.

    Docker does not read the files of layers that it already has, so the archive contains only the
    configuration.
    """
    settings = base.get("Config") or {}
    config = {name: settings[name] for name in KEPT_FIELDS if settings.get(name)}
    config["Labels"] = {**(config.get("Labels") or {}), **request.labels}
    layers = list(made["RootFS"]["Layers"])
    created = datetime.fromtimestamp(int(time.time()), UTC).isoformat().replace("+00:00", "Z")
    document = {
        "architecture": made["Architecture"],
        "os": made.get("Os") or "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": [{"created": created, "created_by": "bai-hub"} for _ in layers],
    }
    content = json.dumps(document).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    paths = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": name, "RepoTags": [request.image], "Layers": paths}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in ((name, content), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _push(
    client: docker.APIClient,
    request: CommitRequest,
    report_percent: Callable[[int | None], object],
    cancelled: threading.Event,
) -> None:
    repository, tag = docker.utils.parse_repository_tag(request.image)
    sizes: dict[str, tuple[int, int]] = {}
    lines = client.push(
        repository, tag=tag, stream=True, decode=True, auth_config=auth_config(request.auth)
    )
    for line in lines:
        _require_wanted(cancelled)
        if "error" in line:
            raise push_error(request.image, str(line["error"]))
        detail = line.get("progressDetail") or {}
        if line.get("id") and detail.get("total"):
            sizes[str(line["id"])] = (int(detail.get("current") or 0), int(detail["total"]))
            total = sum(size for _, size in sizes.values())
            done = sum(min(pair) for pair in sizes.values())
            report_percent(min(99, 100 * done // total) if total else None)


def push_error(image: str, text: str) -> BaiError:
    """Convert Docker's error message of a failed push to an error for the user."""
    low = text.lower()
    if "no space left" in low:
        return StorageFull("the image does not fit on the disk of the registry", image=image)
    if found := SERVER_ERROR.search(text):
        # The message can only suggest that the disk is full, because Docker does not pass on the
        # response in which registries report it.
        return Unavailable(
            f"the registry failed to store the image ({found[1]}); its disk may be full: ask its "
            "administrator, and commit again",
            image=image,
        )
    if any(word in low for word in ("denied", "unauthorized", "no basic auth")):
        return Conflict(f"the registry does not accept the image: {text[:300]}", image=image)
    return Unavailable(f"the image cannot be pushed: {text[:300]}", image=image)
