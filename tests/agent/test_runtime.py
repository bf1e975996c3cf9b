"""Mounting the bai runtime into images that do not contain it, with a real Docker engine."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.runtime import PROBE_LABEL, Runtime
from bai_services.agent.engine import Parts
from bai_services.core.cluster.image_probe import MAX_ACCOUNTS
from bai_services.core.errors import Conflict
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.images import base_image, busybox_image

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("refused_sockets")]

UID = 12345


@pytest.fixture
async def calls(docker_engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 60)
    yield made
    made.close()


@pytest.fixture
def runtime(calls: DockerCalls, runtime_image: str, tmp_path: Path) -> Runtime:
    return Runtime(calls, runtime_image, tmp_path / "image-facts.json")


async def run(engine: DockerEngine, folder: Path, image: str, parts: Parts, *command: str) -> str:
    """Run a command in a container with the mounted runtime and a session's restrictions."""
    (folder / "passwd").write_text(parts.passwd)
    mounts = [f"--volume={parts.volume}:/opt/bai:ro"]
    mounts += [f"--volume={folder}/passwd:/etc/passwd:ro", "--network=none", "--cap-drop=ALL"]
    variables = [f"--env={name}={value}" for name, value in parts.environ.items()]
    entry = f"--entrypoint={parts.entrypoint[0]}"
    words = [*mounts, *variables, f"--user={UID}", entry, image, *parts.entrypoint[1:], *command]
    return await asyncio.to_thread(engine.run, "run", "--rm", *words)


async def test_a_debian_image_gets_its_own_python_and_shell(
    docker_engine: DockerEngine, runtime: Runtime, tmp_path: Path
) -> None:
    image = await asyncio.to_thread(base_image, docker_engine)
    parts = await runtime.parts(image, UID, UID)
    assert parts is not None
    assert parts.environ["BAI_IMAGE_PYTHON"] == "/usr/bin/python3"
    assert parts.environ["SHELL"] == "/bin/bash"
    assert parts.notices == ()
    command = ["sh", "-c", "id -un; python3 -c 'import sys; print(sys.prefix)'"]
    assert await run(docker_engine, tmp_path, image, parts, *command) == "work\n/usr"
    # The kernel of notebooks uses the interpreter of the image, and the mounted packages.
    start = (
        await run(docker_engine, tmp_path, image, parts, "python3", "-I", "-c", KERNEL)
    ).split()
    assert start == ["/usr/bin/python3", parts.environ["BAI_KERNEL_PACKAGES"]]


# Run the kernel start script, but print the origin of its packages instead of starting a kernel.
KERNEL = """
import os, subprocess
from bai_labext import image_kernel
start = image_kernel.__file__.replace("image_kernel", "image_kernel_start")
python = os.environ["BAI_IMAGE_PYTHON"]
code = f'''
import runpy, sys
names = runpy.run_path({start!r})
import os
packages = os.environ["BAI_KERNEL_PACKAGES"]
sys.path.append(packages)
import ipykernel.kernelapp, zmq, tornado
assert ipykernel.__file__.startswith(packages + "/"), ipykernel.__file__
print(sys.executable, packages)
'''
print(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)
"""


async def test_an_image_with_only_busybox_runs_the_session_server(
    docker_engine: DockerEngine, runtime: Runtime, tmp_path: Path
) -> None:
    image = await asyncio.to_thread(busybox_image, docker_engine)
    parts = await runtime.parts(image, UID, UID)
    assert parts is not None
    assert "BAI_IMAGE_PYTHON" not in parts.environ
    assert len(parts.notices) == 1
    assert parts.environ["SHELL"] == "/bin/sh"
    code = "import jupyterlab, ssl, sqlite3, zmq, pwd, os; print(pwd.getpwuid(os.getuid()).pw_name)"
    assert await run(docker_engine, tmp_path, image, parts, "python3", "-I", "-c", code) == "work"
    keygen = ["/opt/bai/rt/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/dev/shm/k"]
    assert await run(docker_engine, tmp_path, image, parts, *keygen) == ""


async def test_an_image_is_probed_once_in_a_sandbox(
    docker_engine: DockerEngine, runtime: Runtime, tmp_path: Path
) -> None:
    image = await asyncio.to_thread(base_image, docker_engine)
    assert await runtime.parts(image, UID, UID) is not None
    image_id = docker_engine.client.images.get(image).id
    stored = json.loads((tmp_path / "image-facts.json").read_text())
    (key,) = stored
    assert key.startswith(f"{image_id} ")
    # The stored facts are used, not a second probe.
    stored[key]["shell"] = "/bin/stored"
    (tmp_path / "image-facts.json").write_text(json.dumps(stored))
    parts = await runtime.parts(image, UID, UID)
    assert parts is not None and parts.environ["SHELL"] == "/bin/stored"
    left = docker_engine.client.containers.list(all=True, filters={"label": PROBE_LABEL})
    assert left == []


async def test_hostile_images_end_with_a_reason(
    docker_engine: DockerEngine, calls: DockerCalls, runtime_image: str, tmp_path: Path
) -> None:
    base = await asyncio.to_thread(base_image, docker_engine)
    lines = [f"FROM {base}", "RUN printf '#!/bin/sh\\nexec sleep 600' > /usr/local/bin/python3"]
    lines += [
        "RUN chmod 755 /usr/local/bin/python3",
        "RUN yes x:x:1: | head -c 2000000 > /etc/group",
    ]
    (tmp_path / "Dockerfile").write_text("\n".join(lines))
    image, _ = await asyncio.to_thread(
        lambda: docker_engine.client.images.build(path=str(tmp_path), rm=True)
    )
    assert isinstance(image.id, str)
    slow = Runtime(calls, runtime_image, tmp_path / "facts.json", probe_seconds=2)
    try:
        with pytest.raises(Conflict, match="took more than 2 s"):
            await slow.parts(image.id, UID, UID)
        # With the default time limit, the probe skips the hanging python3 and truncates the
        # oversized group file.
        patient = Runtime(calls, runtime_image, tmp_path / "facts.json")
        parts = await patient.parts(image.id, UID, UID)
        assert parts is not None
        assert parts.environ["BAI_IMAGE_PYTHON"] == "/usr/bin/python3.11"
        assert len(parts.group.splitlines()) <= MAX_ACCOUNTS + 1
    finally:
        docker_engine.client.images.remove(image.id, force=True)


async def test_nothing_is_mounted_if_the_image_has_the_runtime_or_the_agent_lacks_it(
    docker_engine: DockerEngine, calls: DockerCalls, runtime: Runtime, tmp_path: Path
) -> None:
    base = await asyncio.to_thread(base_image, docker_engine)
    text = f"FROM {base}\nLABEL ai.backend.runtime-path=/opt/bai/bin/python\n"
    image, _ = await asyncio.to_thread(
        lambda: docker_engine.client.images.build(fileobj=io.BytesIO(text.encode()), rm=True)
    )
    assert isinstance(image.id, str)
    assert await runtime.parts(image.id, 1, 1) is None
    for name in ("", "bai-runtime:missing"):
        assert await Runtime(calls, name, tmp_path / "facts").parts(base, UID, UID) is None


async def test_partially_filled_volume_is_refilled(
    docker_engine: DockerEngine, runtime: Runtime, tmp_path: Path
) -> None:
    image = await asyncio.to_thread(base_image, docker_engine)
    parts = await runtime.parts(image, UID, UID)
    assert parts is not None
    # Simulate an interrupted copy: the volume exists, but not the container that marks it as
    # complete.
    client = docker_engine.client
    client.containers.get(parts.volume).remove(force=True)
    client.volumes.get(parts.volume).remove()
    client.volumes.create(parts.volume)
    again = await runtime.parts(image, UID, UID)
    assert again is not None
    assert await run(docker_engine, tmp_path, image, again, "id", "-un") == "work"
    # The current volume is not removed.
    await runtime.remove_unused()
    assert client.volumes.get(parts.volume).name == parts.volume
