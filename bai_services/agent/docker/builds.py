"""Builds of recipes with the builder of the Docker engine."""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import docker

from bai_services.core.cluster.recipes import (
    CACHE_LABEL,
    DOCKERFILE,
    context_files,
    dockerfile_of,
)
from bai_services.core.errors import Conflict, NotFound, Unavailable

# Intermediate images are kept as a cache for this time.
CACHE_LIFETIME = "168h"
CPU_PERIOD = 100_000  # microseconds
_MAX_ERROR = 300
# The builder removes the container of a step that has ended. A younger container may belong to a
# step that has not started yet.
_MIN_STEP_AGE_SECONDS = 60
# Beginnings of lines that are printed by Docker, not by the step.
_OF_DOCKER = ("Step ", " --->", "Removing intermediate container")
_STEP = re.compile(r"Step (\d+)/(\d+) :")
# Docker prints the standard error of a step in red.
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_RUNNING = re.compile(r" ---> Running in ([0-9a-f]{12,64})\s*")


class RunningStep:
    """The container in which Docker runs the current step of a build."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._container = ""

    def begin(self, client: docker.APIClient, container: str) -> None:
        """Record the container of the step; kill it if the build was cancelled."""
        with self._lock:
            self._container = container
        self.require_wanted(client)

    def require_wanted(self, client: docker.APIClient) -> None:
        """If the build was cancelled, kill the current step and raise ``NotFound``."""
        if self._cancelled.is_set():
            self.kill(client)
            raise NotFound("the build was cancelled")

    def kill(self, client: docker.APIClient) -> None:
        """Kill the current step; Docker then ends the build and removes the container."""
        with self._lock:
            container, self._container = self._container, ""
        if container:
            # Ignore errors, because the step may have ended already.
            with suppress(docker.errors.APIError):
                client.kill(container)


def build_recipe(
    client: docker.APIClient,
    recipe: Mapping[str, str],
    container: Mapping[str, Any],
    variables: Mapping[str, str],
    report_percent: Callable[[int | None], object],
    report_output: Callable[[str], object],
    running: RunningStep,
) -> str:
    """Build a recipe from the image of a container; return the id of the new image.

    The build has the container's limits of memory and CPU and its network, but none of its mounts
    and variables. The build context contains only files of the recipe.

    Raises
    ------
    InvalidRequest
        If the recipe is malformed.
    Conflict
        If a step fails.
    NotFound
        If the build was cancelled.
    """
    text = dockerfile_of(recipe, str(container["Image"]), sorted(variables))
    # Send the request directly, because Docker's Python client cannot limit the CPU time of builds.
    response = client.post(
        f"{client.base_url}/v{client.api_version}/build",
        params=_options(container["HostConfig"], variables),
        data=_context({DOCKERFILE: text, **context_files(recipe)}),
        headers={"Content-Type": "application/x-tar"},
        stream=True,
        # No timeout, because steps may run for a long time without output.
        timeout=None,
    )
    with response:
        if not response.ok:
            raise Unavailable(f"the Docker engine rejected the build: {response.text[:_MAX_ERROR]}")
        lines = (json.loads(line) for line in response.iter_lines() if line)
        return _follow(client, lines, report_percent, report_output, running)


def _options(host: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a build with the limits and the network of a container."""
    options: dict[str, Any] = {"rm": True, "forcerm": True, "buildargs": json.dumps(variables)}
    options["networkmode"] = host.get("NetworkMode") or "none"
    if memory := host.get("Memory"):
        options |= {"memory": memory, "memswap": memory}
    if nano_cpus := host.get("NanoCpus"):
        options |= {"cpuperiod": CPU_PERIOD, "cpuquota": nano_cpus * CPU_PERIOD // 10**9}
    return options


def _follow(
    client: docker.APIClient,
    lines: Iterable[Mapping[str, Any]],
    report_percent: Callable[[int | None], object],
    report_output: Callable[[str], object],
    running: RunningStep,
) -> str:
    image, step, last = "", 0, ""
    for line in lines:
        running.require_wanted(client)
        if "error" in line:
            raise _failure(line, step, last)
        text = _COLOR.sub("", str(line.get("stream") or ""))
        if text:
            report_output(text)
            if not text.startswith(_OF_DOCKER):
                last = text.strip() or last
        if found := _STEP.match(text):
            step = int(found[1])
            report_percent(min(99, 100 * (step - 1) // max(1, int(found[2]))))
        if begun := _RUNNING.fullmatch(text):
            running.begin(client, begun[1])
        image = str((line.get("aux") or {}).get("ID") or image)
    running.require_wanted(client)
    if not image:
        raise Conflict("the build ended without an image")
    return image


def _failure(line: Mapping[str, Any], step: int, last: str) -> Conflict:
    code = (line.get("errorDetail") or {}).get("code")
    if code:
        shown = last.splitlines()[-1][:_MAX_ERROR] if last else ""
        return Conflict(f"step {step} of the build failed with exit code {code}: {shown}")
    return Conflict(f"the build failed: {str(line['error'])[:_MAX_ERROR]}")


def remove_old_cache(client: docker.APIClient, agent_label: str) -> None:
    """Remove old images of build steps, and containers of interrupted builds.

    An engine that crashed during a build leaves the container of the step. Containers of sessions
    with built images also have the label of the cache; they are kept, because they also have
    ``agent_label``.
    """
    client.prune_images({"dangling": True, "label": [CACHE_LABEL], "until": CACHE_LIFETIME})
    filters = {"label": [CACHE_LABEL], "status": ["created", "exited", "dead"]}
    for container in client.containers(all=True, filters=filters):
        age = time.time() - float(container["Created"])
        if agent_label not in container["Labels"] and age > _MIN_STEP_AGE_SECONDS:
            client.remove_container(container["Id"], v=True)


def _context(files: Mapping[str, str]) -> io.BytesIO:
    """Return the build context. It is the same for the same files, so that the cache is used."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in sorted(files.items()):
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer
