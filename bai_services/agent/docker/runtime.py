"""Volume with the platform's parts for images that lack them, and facts about these images."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import docker

from bai_services.core.cluster.image_probe import (
    ENTRYPOINT,
    MAX_PROBE_BYTES,
    PARTS,
    PROBE,
    ProbedImage,
    account_files,
    needs_parts,
    notices_of,
    parse_environ,
    parse_probe,
    session_environ,
)
from bai_services.core.errors import Conflict, Unavailable

from ..engine import Parts
from .calls import DockerCalls

log = logging.getLogger(__name__)

PROBE_SECONDS = 60.0
PROBE_POLL_SECONDS = 0.05
# Time limit for copying the parts (several hundred MiB) to a new volume.
FILL_SECONDS = 600
# Minimum age at which a volume of an earlier runtime image is removed.
MIN_UNUSED_SECONDS = 3600
PROBE_MEMORY_BYTES = 512 * 2**20
PROBE_LABEL = "bai.probe"
VOLUME_LABEL = "bai.runtime"
# User of a probe: nobody.
PROBE_USER = "65534:65534"
MAX_STORED_PROBES = 500
NOT_FOUND = 404
CONFLICT = 409


class Runtime:
    """Maintains the volume with the platform's parts, and probes each image once.

    The volume is filled from the runtime image, which has the architecture of this machine. A new
    runtime image gets a new volume; the old one is removed when no container uses it.
    """

    def __init__(
        self,
        calls: DockerCalls,
        image: str,
        facts_file: Path,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        """``image``: name of the runtime image; empty: images without the parts run as they are."""
        self._calls = calls
        self._image = image
        self._facts_file = facts_file
        self._probe_seconds = probe_seconds
        self._lock = asyncio.Lock()

    async def parts(self, image: str, uid: int, gid: int) -> Parts | None:
        """Return the parts that an image lacks; None if it has them, or there is no runtime image.

        Raises
        ------
        Conflict
            If the image has another architecture than the machine, or the probe fails.
        Unavailable
            If the engine does not respond.
        """
        if not self._image:
            return None
        inspected = await self._calls.run("query", lambda client: client.inspect_image(image))
        config = inspected.get("Config") or {}
        if not needs_parts(config.get("Labels") or {}):
            return None
        runtime = await self._calls.run("query", lambda client: _inspect(client, self._image))
        if runtime is None:
            log.warning("image %s lacks the platform's parts; there is no %s", image, self._image)
            return None
        if inspected.get("Architecture") != runtime.get("Architecture"):
            raise Conflict(
                f"image {image} is for {inspected.get('Architecture')}, but the machine has "
                f"{runtime.get('Architecture')}",
                image=image,
            )
        async with self._lock:
            volume = await self._calls.run("change", lambda client: self._volume(client, runtime))
            facts = await self._facts(image, str(inspected["Id"]), str(runtime["Id"]), volume)
        environ = session_environ(facts, parse_environ(config.get("Env")))
        passwd, group = account_files(facts, uid, gid)
        return Parts(ENTRYPOINT, environ, volume, passwd, group, tuple(notices_of(facts)))

    async def remove_unused(self) -> None:
        """Remove volumes of earlier runtime images, and containers of interrupted probes."""
        if not self._image:
            return
        try:
            async with self._lock:
                await self._calls.run("change", self._remove_unused)
        except (Unavailable, docker.errors.APIError) as error:
            log.warning("old volumes of the runtime image cannot be removed: %s", error)

    def _remove_unused(self, client: docker.APIClient) -> None:
        now = time.time()
        for container in client.containers(all=True, filters={"label": PROBE_LABEL}):
            if now - float(container["Created"]) > 2 * self._probe_seconds:
                client.remove_container(container["Id"], force=True)
        runtime = _inspect(client, self._image)
        current = _volume_name(runtime) if runtime is not None else ""
        for container in client.containers(all=True, filters={"label": VOLUME_LABEL}):
            name = str(container["Names"][0]).lstrip("/")
            # Keep new volumes, because another agent on this engine may use another runtime image.
            if name == current or now - float(container["Created"]) < MIN_UNUSED_SECONDS:
                continue
            client.remove_container(container["Id"], force=True)
            try:
                client.remove_volume(name)
            except docker.errors.APIError as error:
                # Keep the volume if Docker refuses to remove it, because a session still uses it.
                if error.status_code not in (NOT_FOUND, CONFLICT):
                    raise

    def _volume(self, client: docker.APIClient, runtime: Mapping[str, Any]) -> str:
        """Return the volume of a runtime image; create and fill it if necessary."""
        name = _volume_name(runtime)
        if _inspect_container(client, name) is None:
            _fill_volume(client, name, str(runtime["Id"]))
        return name

    async def _facts(self, image: str, image_id: str, runtime_id: str, volume: str) -> ProbedImage:
        key = f"{image_id} {runtime_id}"
        stored = await asyncio.to_thread(self._read)
        if key in stored:
            try:
                return parse_probe(json.dumps(stored[key]))
            except ValueError:
                log.warning("the stored facts of image %s are not valid", image)
        text = await self._probe(image, image_id, volume)
        try:
            facts = parse_probe(text)
        except ValueError as error:
            raise Conflict(f"image {image} cannot be probed: {error}", image=image) from None
        values = [*stored.items(), (key, asdict(facts))][-MAX_STORED_PROBES:]
        await asyncio.to_thread(self._write, dict(values))
        log.info("image %s: Python %s, shell %s", image, facts.python_version, facts.shell)
        return facts

    async def _probe(self, image: str, image_id: str, volume: str) -> str:
        """Run the probe in a container without network, privileges and writable files."""
        container_id = await self._calls.run("change", _starter(image_id, volume))
        try:
            deadline = time.monotonic() + self._probe_seconds
            while True:
                state = (
                    await self._calls.run("query", lambda c: c.inspect_container(container_id))
                )["State"]
                if not state["Running"]:
                    break
                if time.monotonic() > deadline:
                    raise Conflict(
                        f"the probe of image {image} took more than {self._probe_seconds:g} s",
                        image=image,
                    )
                await asyncio.sleep(PROBE_POLL_SECONDS)
            data = await self._calls.run("query", _log_reader(container_id))
        finally:
            await asyncio.shield(self._calls.run("change", _remover(container_id)))
        if state["ExitCode"]:
            raise Conflict(
                f"image {image} cannot run the platform's parts (exit code {state['ExitCode']})",
                image=image,
            )
        return data.decode(errors="replace")

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self._facts_file.read_text())
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, values: Mapping[str, Any]) -> None:
        temporary = self._facts_file.with_name(f".{self._facts_file.name}")
        try:
            temporary.write_text(json.dumps(values))
            temporary.replace(self._facts_file)
        except OSError as error:
            # Continue: the next session of the image repeats the probe.
            log.warning("the facts of images cannot be stored: %s", error.strerror)


def _volume_name(runtime: Mapping[str, Any]) -> str:
    short = str(runtime["Id"]).rpartition(":")[2][:12]
    return f"bai-runtime-{runtime.get('Architecture')}-{short}"


def _inspect(client: docker.APIClient, image: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = client.inspect_image(image)
    except docker.errors.APIError as error:
        if error.status_code == NOT_FOUND:
            return None
        raise
    return found


def _inspect_container(client: docker.APIClient, name: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = client.inspect_container(name)
    except docker.errors.APIError as error:
        if error.status_code == NOT_FOUND:
            return None
        raise
    return found


def _fill_volume(client: docker.APIClient, name: str, image_id: str) -> None:
    """Create a volume with the content of the runtime image.

    Docker copies the content of an image's folder into an empty volume when it creates a container.
    The container has the name of the volume and is not removed: its existence shows that the copy
    is complete, and it keeps `docker volume prune` from removing the volume.
    """
    timeout = client.timeout
    # The client belongs to this thread, so its timeout can be changed.
    client.timeout = FILL_SECONDS
    try:
        # Remove the incomplete volume that an interrupted copy may have left.
        with suppress(docker.errors.NotFound):
            client.remove_volume(name)
        client.create_volume(name, labels={VOLUME_LABEL: image_id})
        host = client.create_host_config(binds=[f"{name}:{PARTS}"])
        client.create_container(
            image_id, name=name, host_config=host, labels={VOLUME_LABEL: image_id}
        )
    except docker.errors.APIError as error:
        if error.status_code != CONFLICT:
            raise
        raise Unavailable(
            "the platform's parts are being copied to this machine; try again shortly"
        ) from error
    finally:
        client.timeout = timeout


def _starter(image_id: str, volume: str) -> Callable[[docker.APIClient], str]:
    def start(client: docker.APIClient) -> str:
        host = client.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "size=16m,noexec"},
            binds=[f"{volume}:{PARTS}:ro"],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=64,
            mem_limit=PROBE_MEMORY_BYTES,
            memswap_limit=PROBE_MEMORY_BYTES,
            nano_cpus=1_000_000_000,
            # Read only a limited part of the output of the probe.
            log_config={"type": "json-file", "config": {"max-size": "1m", "max-file": "1"}},
        )
        created = client.create_container(
            image_id,
            entrypoint=list(PROBE),
            command=[],
            user=PROBE_USER,
            working_dir="/",
            labels={PROBE_LABEL: "probe"},
            host_config=host,
        )
        container_id = str(created["Id"])
        try:
            client.start(container_id)
        except BaseException:
            client.remove_container(container_id, force=True)
            raise
        return container_id

    return start


def _log_reader(container_id: str) -> Callable[[docker.APIClient], bytes]:
    def read(client: docker.APIClient) -> bytes:
        data: bytes = client.logs(container_id, stdout=True, stderr=False)
        return data[: MAX_PROBE_BYTES + 1]

    return read


def _remover(container_id: str) -> Callable[[docker.APIClient], None]:
    def remove(client: docker.APIClient) -> None:
        try:
            client.remove_container(container_id, force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code not in (NOT_FOUND, CONFLICT):
                raise

    return remove
