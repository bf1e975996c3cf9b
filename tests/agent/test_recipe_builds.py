"""Builds of recipes on a Docker engine: steps, limits, the cache, failures and cancellations."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container

from bai_services.agent.docker import builds
from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.commits import OUTPUT, commit
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.recipes import CACHE_LABEL
from bai_services.core.errors import Conflict
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image
from tests.testbed.wait import wait_until_async

pytestmark = [pytest.mark.docker]

MEMORY = 256 * 2**20


@dataclass
class Build:
    """A session without network, with the secret variable ``TOKEN``, whose recipe is built."""

    engine: DockerEngine
    calls: DockerCalls
    session: Container
    mark: str
    output: str = ""
    stages: list[tuple[str, int | None]] = field(default_factory=list)

    async def run(self, name: str, recipe: dict[str, str], **options: Any) -> dict[str, Any]:
        def progress(stage: str, text: str, percent: int | None) -> None:
            if stage == OUTPUT:
                self.output += text
            else:
                self.stages.append((stage, percent))

        request = CommitRequest(
            id="commit-1",
            session_id=str(uuid.uuid4()),
            kernel_id=str(uuid.uuid4()),
            image=self.image(name),
            recipe=recipe,
            labels={"team": "a"},
            **options,
        )
        filters = {"label": [f"bai.test={self.mark}"]}
        variables = {"MIRROR": "https://mirror.example.org"}
        return await commit(self.calls, filters, request, progress, variables)

    def image(self, name: str) -> str:
        return f"localhost/custom/{self.mark}/{name}:1"

    def print_in(self, name: str, command: str) -> str:
        run = self.engine.client.containers.run
        printed: bytes = run(self.image(name), ["sh", "-c", command], remove=True)
        return printed.decode()


@pytest.fixture
def calls(docker_engine: DockerEngine) -> Iterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 60)
    yield made
    made.close()


@pytest.fixture
async def build(
    docker_engine: DockerEngine, calls: DockerCalls, tmp_path: Path
) -> AsyncIterator[Build]:
    mark, client = uuid.uuid4().hex, docker_engine.client
    (tmp_path / "file").write_text("data of the user")
    session = await asyncio.to_thread(
        client.containers.run,
        base_image(docker_engine),
        ["sleep", "600"],
        detach=True,
        network_mode="none",
        mem_limit=MEMORY,
        nano_cpus=5 * 10**8,
        environment={"TOKEN": "secret-of-the-session"},
        volumes={str(tmp_path): {"bind": "/home/work/data"}},
        labels={"bai.test": mark},
    )
    yield Build(docker_engine, calls, session, mark)

    def clean_up() -> None:
        session.remove(force=True)
        for image in client.images.list(filters={"reference": f"localhost/custom/{mark}/*"}):
            client.images.remove(image.id, force=True)
        client.images.prune({"dangling": True, "label": [CACHE_LABEL]})

    await asyncio.to_thread(clean_up)


async def test_steps_are_run_and_nothing_of_the_session_is_used(build: Build) -> None:
    dockerfile = f"""\
FROM base
RUN echo {build.mark} > /opt/made && id -u >> /opt/made
ENV GREETING="hello $MIRROR"
RUN env > /opt/env; ls -A /home/work > /opt/home 2>&1; ls /sys/class/net > /opt/network
RUN cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max \\
        > /opt/limit 2>/dev/null || true
USER 1000
RUN echo '{build.mark}' "$(id -u)"
"""
    made = await build.run("first", {"Dockerfile": dockerfile})
    assert made["size_bytes"] > 0
    assert build.print_in("first", "cat /opt/made") == f"{build.mark}\n0\n"
    assert "secret-of-the-session" not in build.print_in("first", "cat /opt/env")
    assert "MIRROR=https://mirror.example.org" in build.print_in("first", "cat /opt/env")
    assert "data" not in build.print_in("first", "cat /opt/home")
    assert build.print_in("first", "cat /opt/network") == "lo\n"
    assert build.print_in("first", "cat /opt/limit") == f"{MEMORY}\n"
    # Variables of the installation are not part of the image; the user is that of the base image.
    shown = build.print_in("first", "id -u; env")
    assert shown.startswith("0\n") and "\nMIRROR=" not in shown
    labels = build.engine.client.images.get(build.image("first")).labels
    assert labels["team"] == "a" and CACHE_LABEL not in labels
    assert f"{build.mark} 1000" in build.output
    assert ("build", None) in build.stages
    assert max(percent or 0 for _, percent in build.stages) > 50

    # All steps but the last one are taken from the cache, although the image was removed.
    await asyncio.to_thread(build.engine.client.images.remove, build.image("first"))
    build.output = ""
    await build.run("second", {"Dockerfile": dockerfile + "RUN true\n"})
    assert build.output.count("Using cache") == 8


@pytest.mark.parametrize(
    "recipe, problem",
    [
        pytest.param(
            {"Dockerfile": "RUN exit 3"},
            "step 5 of the build failed with exit code 3",
            id="command",
        ),
        pytest.param(
            {"environment.yml": "{}"}, "code 1: the base image contains neither", id="no conda"
        ),
        pytest.param(
            {"Dockerfile": "RUN python3 -c 'x = bytearray(1 << 30)'"},
            "failed with exit code 137",
            id="memory",
        ),
    ],
)
async def test_failed_steps_end_the_build(
    build: Build, recipe: dict[str, str], problem: str
) -> None:
    with pytest.raises(Conflict, match=problem):
        await build.run("failed", recipe)
    assert not build.engine.client.images.list(build.image("failed"))


async def test_an_image_that_is_too_large_is_removed(build: Build) -> None:
    recipe = {"Dockerfile": "RUN head -c 3000000 /dev/zero > /opt/large"}
    with pytest.raises(Conflict, match="at most 1.91 MiB|at most 2000000"):
        await build.run("large", recipe, max_bytes=2_000_000)
    assert not build.engine.client.images.list(build.image("large"))


async def test_a_cancelled_build_ends_a_silent_step(build: Build) -> None:
    marker = f"/tmp/{build.mark}"
    recipe = {"Dockerfile": f"RUN touch {marker} && sleep 600"}
    running = asyncio.create_task(build.run("cancelled", recipe))

    def steps() -> list[Container]:
        found = build.engine.client.containers.list()
        return [one for one in found if marker in str(one.attrs["Config"]["Cmd"])]

    def begun() -> bool:
        return "Running in" in build.output and bool(steps())

    await wait_until_async(lambda: asyncio.to_thread(begun), 60, "the step")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_async(
        lambda: asyncio.to_thread(lambda: not steps()), 30, "the end of the step"
    )
    assert not build.engine.client.images.list(build.image("cancelled"))


async def test_containers_of_lost_builds_are_removed(
    docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that has crashed during a build leaves the container of the step."""
    create, image = docker_engine.client.containers.create, base_image(docker_engine)
    labels = {CACHE_LABEL: "1"}
    lost = create(image, ["true"], labels=labels)
    session = create(image, ["true"], labels={**labels, "bai.agent-id": "other"})
    running = create(image, ["sleep", "600"], labels=labels)
    running.start()

    def remove() -> set[str]:
        builds.remove_old_cache(docker_engine.client.api, "bai.agent-id")
        found = docker_engine.client.containers.list(all=True, filters={"label": CACHE_LABEL})
        return {container.id for container in found} & {lost.id, session.id, running.id}

    try:
        # This container belongs to a step that has not begun yet.
        assert lost.id in await asyncio.to_thread(remove)
        later = time.time() + 120
        monkeypatch.setattr(time, "time", lambda: later)
        assert await asyncio.to_thread(remove) == {session.id, running.id}
    finally:
        monkeypatch.undo()
        for container in (session, running):
            container.remove(force=True)
