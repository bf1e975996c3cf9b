"""Pulls from a real registry into a real Docker engine, and eviction of unused images."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import shutil
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.image_uses import ImageUses
from bai_services.agent.docker.images import Images
from bai_services.core import errors
from bai_services.core.cluster.image_store import PruneRequest, read_auth
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.image_registry import PASSWORD, USERNAME, serving_registry
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.docker

CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: "{folder}"}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """The address of a running registry."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed; scripts/testbed install does that")
    port = free_port()
    config = tmp_path / "registry.yml"
    config.write_text(CONFIG.format(folder=tmp_path / "registry", port=port))
    process = subprocess.Popen([program, "serve", str(config)])

    def responds() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/v2/").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(responds, 30, "the registry")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def calls(docker_engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 60)
    yield made
    made.close()


def import_image(engine: DockerEngine, name: str) -> None:
    """Create an image with one file of random content."""
    content, packed = secrets.token_bytes(100_000), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("data")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    repository, _, tag = name.rpartition(":")
    engine.client.api.import_image_from_data(
        packed.getvalue(), repository=repository, tag=tag, changes=['CMD ["/data"]']
    )


def push(engine: DockerEngine, name: str) -> None:
    """Push a new version of an image, and remove it from the engine."""
    import_image(engine, name)
    engine.run("push", name)
    engine.run("rmi", name)


async def test_a_pull_by_digest_keeps_its_version_although_the_tag_has_moved(
    docker_engine: DockerEngine, registry: str, calls: DockerCalls, tmp_path: Path
) -> None:
    name = f"{registry}/team/py:1"
    images = Images(calls, ImageUses(tmp_path / "uses.json", 0))
    progress: list[int | None] = []

    def report(stage: str, message: str, percent: int | None) -> None:
        progress.append(percent)

    try:
        await asyncio.to_thread(push, docker_engine, name)
        first = await images.pull(name, "", report)
        assert first["digest"] == first["registry_digest"] != ""
        assert (await images.digests())[name] == first["digest"]
        await asyncio.to_thread(docker_engine.run, "rmi", name)
        await asyncio.to_thread(push, docker_engine, name)
        second = await images.pull(name, str(first["digest"]), report)
        assert second["digest"] == first["digest"] != second["registry_digest"]
        assert (await images.digests())[name] == first["digest"]
        assert name in json.loads((tmp_path / "uses.json").read_text())
        with pytest.raises(errors.NotFound, match="cannot be pulled"):
            await images.pull(f"{registry}/team/absent:1", "", report)
    finally:
        await asyncio.to_thread(docker_engine.run, "rmi", "--force", name)
    with pytest.raises(errors.Unavailable, match="does not respond"):
        await images.pull(f"127.0.0.1:{free_port()}/team/py:1", "", report)


async def test_unused_images_are_listed_and_removed_on_request(
    docker_engine: DockerEngine, registry: str, calls: DockerCalls, tmp_path: Path
) -> None:
    # One repository each, because Docker moves the digest of an image with its last tag.
    names = {kind: f"{registry}/{kind}/py:1" for kind in ("old", "new", "used", "kept", "foreign")}
    names["local"] = f"local-{secrets.token_hex(4)}/py:1"
    for kind, name in names.items():
        import_image(docker_engine, name)
        if kind != "local":
            docker_engine.run("push", name)
    container = docker_engine.run("create", names["used"])
    day, uses = 24 * 3600, tmp_path / "uses.json"
    times = {name: time.time() - 8 * day for kind, name in names.items() if kind != "foreign"}
    uses.write_text(json.dumps({**times, names["new"]: time.time() - day}))
    images = Images(calls, ImageUses(uses, 0))
    keep = frozenset({names["kept"]})
    try:
        for is_dry_run in (True, False):
            request = PruneRequest("p", 7 * day, keep, is_dry_run)
            (pruned,) = await images.prune(request)
            assert (pruned["image"], pruned["is_removed"]) == (names["old"], not is_dry_run)
            assert pruned["size_bytes"] >= 100_000
            present = set(await images.digests()) & set(names.values())
            gone = set() if is_dry_run else {names["old"]}
            assert present == set(names.values()) - gone
        assert await images.prune(PruneRequest("p", 7 * day, keep, is_dry_run=False)) == []
    finally:
        docker_engine.run("rm", container)
        for name in set(await images.digests()) & set(names.values()):
            docker_engine.run("rmi", name)


async def test_only_unused_images_of_bai_hub_are_evicted(
    docker_engine: DockerEngine, calls: DockerCalls, tmp_path: Path
) -> None:
    prefix = f"evict-{secrets.token_hex(4)}"
    names = {kind: f"{prefix}/{kind}:1" for kind in ("old", "used", "recent", "foreign")}
    for name in names.values():
        await asyncio.to_thread(import_image, docker_engine, name)
    times = {names["old"]: 1.0, names["used"]: 1.0, names["recent"]: time.time()}
    (tmp_path / "uses.json").write_text(json.dumps(times))
    container = await asyncio.to_thread(docker_engine.run, "create", names["used"])
    try:
        await Images(calls, ImageUses(tmp_path / "uses.json", 0)).evict()
        assert names["old"] in await Images(calls, ImageUses(tmp_path / "x", 0)).digests()
        images = Images(calls, ImageUses(tmp_path / "uses.json", 1))
        await images.evict()
        left = {name for name in await images.digests() if name.startswith(prefix)}
        assert left == {names["used"], names["recent"], names["foreign"]}
        assert names["old"] not in json.loads((tmp_path / "uses.json").read_text())
    finally:
        await asyncio.to_thread(docker_engine.run, "rm", "--force", container)
        for name in (names["used"], names["recent"], names["foreign"]):
            await asyncio.to_thread(docker_engine.run, "rmi", "--force", name)


async def test_an_image_that_is_used_during_the_eviction_is_kept(
    docker_engine: DockerEngine, calls: DockerCalls, tmp_path: Path
) -> None:
    name = f"evict-{secrets.token_hex(4)}/py:1"
    await asyncio.to_thread(import_image, docker_engine, name)
    (tmp_path / "uses.json").write_text(json.dumps({name: 1.0}))
    uses = ImageUses(tmp_path / "uses.json", 1)

    class Calls(DockerCalls):
        async def run(self, pool: str, call: Any) -> Any:
            result = await calls.run(pool, call)
            # A session is prepared after the images have been listed.
            uses.record(name)
            return result

    try:
        await Images(Calls.__new__(Calls), uses).evict()
        assert name in await Images(calls, uses).digests()
    finally:
        await asyncio.to_thread(docker_engine.run, "rmi", "--force", name)


async def test_pull_secrets_reach_only_the_engine(
    docker_engine: DockerEngine,
    calls: DockerCalls,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    images = Images(calls, ImageUses(tmp_path / "uses.json", 0))
    content = layer_of(b"content")
    with serving_registry(tmp_path / "registry") as registry:
        digest = registry.push("team/py", ["1"], {"a": "b"}, layer=content)
        name = f"{registry.host}/team/py:1"
        auth = read_auth({"registry_auth": {"username": USERNAME, "password": PASSWORD}})
        assert PASSWORD not in repr(auth)
        try:
            with pytest.raises(errors.NotFound, match="cannot be pulled"):
                await images.pull(name, "", lambda *_: None)
            pulled = await images.pull(name, "", lambda *_: None, auth)
            assert pulled["digest"] == pulled["registry_digest"] == digest
            await asyncio.to_thread(docker_engine.run, "rmi", name)
            # A session that needs the image pulls it in the same way.
            await images.ensure(name, lambda *_: None, auth)
            inspected = await asyncio.to_thread(docker_engine.run, "inspect", name)
        finally:
            await asyncio.to_thread(docker_engine.run, "rmi", "--force", name)
    assert PASSWORD not in inspected + caplog.text
    assert PASSWORD not in (tmp_path / "uses.json").read_text()


def layer_of(content: bytes) -> bytes:
    """Return a layer with one file, uncompressed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("data")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()
