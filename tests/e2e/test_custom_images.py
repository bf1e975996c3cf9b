"""Sessions of a plain image, which has no parts of bai-hub, and commits, on the Docker engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.e2e.conftest import LISTEN_ON_ALL_ADDRESSES
from tests.e2e.sessions import JSON, checked, start, stop, wait_for
from tests.e2e.test_batch import log_of
from tests.e2e.test_tunnel import command
from tests.hub import RunningHub
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.image_registry import PASSWORD, USERNAME, TlsRegistry, serving_registry
from tests.testbed.images import (
    ROOT,
    base_image,
    minimal_image,
    mirror_image,
    mirror_variables,
)
from tests.testbed.jupyter import JupyterServer
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

MATRIX = ROOT / "images" / "matrix"
SECRETS = ["secret-in-the-environment", "text-in-a-folder", "text-in-the-home", "PRIVATE KEY"]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRegistry]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def hub(
    docker_engine: DockerEngine,
    runtime_image: str,
    registry: TlsRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningHub]:
    """A demo whose images are plain Debian, and which has a registry for commits."""
    home = tmp_path_factory.mktemp("hub")
    further = home / "further.py"
    further.write_text(LISTEN_ON_ALL_ADDRESSES)
    environment = {
        "DOCKER_HOST": docker_engine.host,
        "BAI_AGENT_CPU": "8",
        # Builds must reach the package mirrors of this machine, whose addresses may not be public.
        "BAI_AGENT_EGRESS": "open",
        "BAI_AGENT_RUNTIME_IMAGE": runtime_image,
        "BAI_BUILD_RECIPES": "1",
        "BAI_AGENT_BUILD_VARIABLES": mirror_variables(),
        "BAI_COMMIT_REGISTRY": "lab",
        "BAI_CONFIG": str(further),
        "BAI_REGISTRY_NETWORKS": "127.0.0.0/8",
    }
    running = RunningHub(home, engine="docker", environment=environment)
    try:
        running.start()
        with running.rest("admin") as admin:
            for name in {base_image(docker_engine), mirror_image(docker_engine)}:
                checked(admin.post("/images", json={"name": name, "labels": {}}), 201)
            spec = {"name": "lab", "url": registry.url, "ca_certificate": registry.certificate}
            login = {"username": USERNAME, "password": PASSWORD}
            checked(admin.post("/image-registries", json={**spec, **login}), 201)
        yield running
    finally:
        running.stop()


def server_of(hub: RunningHub, session: JSON) -> JupyterServer:
    token = hub.rest("user").headers["Authorization"].split()[1]
    return JupyterServer(hub.url + session["url"], token)


def bai(hub: RunningHub, folder: Path, *words: str) -> str:
    environ = {"BAI_CONFIG_DIR": str(folder / "config"), "HOME": str(folder)}
    options = command(hub, hub.rest("user"), *words, environ=environ)
    done = subprocess.run(**options, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


async def output_of(server: JupyterServer, code: str) -> str:
    """Run code in a new notebook kernel, and return what it prints."""
    kernel = server.request("POST", "api/kernels").json()
    header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1"}
    message = {
        "header": {**header, "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "channel": "shell",
        "content": {"code": code, "silent": False, "allow_stdin": False},
    }
    async with server.websocket(f"api/kernels/{kernel['id']}/channels") as channels:
        await channels.write_message(json.dumps(message))
        while True:
            received: Any = await channels.read_message()
            assert received is not None, "the kernel ended"
            answer = json.loads(received)
            assert answer["msg_type"] != "error", answer["content"]
            if answer["msg_type"] == "stream":
                return str(answer["content"]["text"])


async def test_a_plain_debian_image_offers_jupyterlab_terminal_ssh_and_batch(
    hub: RunningHub, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    image, rest = base_image(docker_engine), hub.rest("user")
    session = start(rest, "plain", image=image)
    server = server_of(hub, session)
    assert server.page("lab").status_code == 200
    line = "id -un; command -v python3; echo $HOME $SHELL do''ne"
    shown = await server.run_in_terminal(line, "done")
    assert "work\r\n/usr/bin/python3\r\n/home/work /bin/bash done" in shown
    shown = await server.run_in_terminal("touch /opt/bai/x; echo do''ne", "done")
    assert "Read-only file system" in shown
    # The kernel of notebooks runs with the image's Python.
    assert await output_of(server, "import sys; print(sys.executable)") == "/usr/bin/python3\n"
    bai(hub, tmp_path, "ssh-key", "generate", "laptop")
    assert bai(hub, tmp_path, "ssh", "plain", "cat", "/etc/debian_version").startswith("12.")
    stop(rest, session["id"])

    job = {"name": "plain-job", "type": "batch", "project": "default", "image": image}
    job |= {"resources": {"cpu": "1", "mem": "512m"}}
    job |= {"startup_command": "id -un; python3 -c 'import sys; print(sys.prefix)'"}
    batch = checked(rest.post("/sessions", json=job), 201)
    assert wait_for(rest, batch["id"], "TERMINATED")["result"] == "success"
    assert log_of(rest, batch) == "work\n/usr\n"


async def test_a_commit_has_packages_but_no_folders_and_secrets(
    hub: RunningHub, docker_engine: DockerEngine, registry: TlsRegistry, tmp_path: Path
) -> None:
    image, rest = base_image(docker_engine), hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "committed"}), 201)
    session = start(
        rest,
        "source",
        image=image,
        environ={"MY_PASSWORD": SECRETS[0]},
        mounts=[{"vfolder": folder["name"], "path": "data"}],
    )
    server = server_of(hub, session)
    site = "$(python3 -c 'import site; print(site.getusersitepackages())')"
    lines = [
        f"mkdir -p {site}",
        f"echo 'answer = 42' > {site}/byhand.py",
        f"echo {SECRETS[1]} > data/file",
        f"echo {SECRETS[2]} > file",
        "echo do''ne",
    ]
    await server.run_in_terminal(" && ".join(lines), "done")
    bai(hub, tmp_path, "ssh-key", "generate", "for-commits")
    assert "42" in bai(
        hub, tmp_path, "ssh", "source", "python3", "-c", "'import byhand; print(byhand.answer)'"
    )

    made = checked(rest.post("/sessions/source/commit", json={"name": "by-hand"}), 202)
    path = f"/custom-images/{made['id']}"

    def ended() -> JSON | None:
        row: JSON = checked(rest.get(path), 200)
        return row if row["status"] in ("done", "failed") else None

    done = wait_until(ended, 120, "the commit")
    assert done["status"] == "done", done
    assert done["image"].startswith(f"{registry.host}/custom/user/by-hand:")
    assert done["digest"].startswith("sha256:")

    config = docker_engine.client.images.get(done["image"]).attrs["Config"]
    base = docker_engine.client.images.get(image).attrs["Config"]
    assert config["Env"] == base["Env"]
    saved = tmp_path / "image.tar"
    docker_engine.run("save", "--output", str(saved), done["image"])
    token = rest.headers["Authorization"].split()[1]
    for secret in [*SECRETS, token, session["id"]]:
        assert not contains(saved, secret.encode()), secret
    stop(rest, session["id"])

    # A new session pulls the image from the registry, and imports the package.
    docker_engine.run("rmi", "--force", done["image"])
    job = {"name": "again", "type": "batch", "project": "default", "image": done["image"]}
    job |= {"resources": {"cpu": "1", "mem": "512m"}}
    job |= {"startup_command": "python3 -c 'import byhand; print(byhand.answer)'; ls -A /home/work"}
    batch = checked(rest.post("/sessions", json=job), 201)
    assert wait_for(rest, batch["id"], "TERMINATED")["result"] == "success"
    assert log_of(rest, batch).startswith("42\n")
    checked(rest.delete(path), 204)
    assert rest.get(path).status_code == 404


LIBRARY = """
[images.toolz]
description = "toolz"
pip = ["toolz==VERSION"]
"""


def build_library(engine: DockerEngine, version: str, folder: Path) -> str:
    """Build an image with a version of a library, always with the same name; return the output."""
    images = folder / "images.toml"
    images.write_text(LIBRARY.replace("VERSION", version))
    words = ["--images", str(images), "--python", "3.11", "--minimal", minimal_image(engine)]
    done = subprocess.run(
        [sys.executable, MATRIX, *words, "--prefix", "bai-testbed", "toolz"],
        env={**os.environ, "DOCKER_HOST": engine.host},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


async def test_two_versions_of_a_library_run_in_two_sessions_at_once(
    hub: RunningHub, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    rest, versions = hub.rest("user"), ("0.12.1", "1.0.0")
    names = [f"bai-testbed-toolz:{version}" for version in versions]
    build_library(docker_engine, versions[0], tmp_path)
    docker_engine.run("tag", "bai-testbed-toolz:py3.11", names[0])
    shown = build_library(docker_engine, versions[1], tmp_path)
    docker_engine.run("tag", "bai-testbed-toolz:py3.11", names[1])
    # `make images` reports what the second build has changed.
    packages = re.findall(r"^  (.) pypi/(\S+) (.*)$", shown, re.MULTILINE)
    assert packages == [("~", "toolz", "0.12.1 -> 1.0.0")], shown
    with hub.rest("admin") as admin:
        for name in names:
            labels = docker_engine.client.images.get(name).labels
            checked(admin.post("/images", json={"name": name, "labels": labels}), 201)

    sessions = [start(rest, f"toolz-{n}", image=name) for n, name in enumerate(names)]
    code = "import toolz; print(toolz.__version__)"
    found = [await output_of(server_of(hub, session), code) for session in sessions]
    assert found == [f"{version}\n" for version in versions]
    statuses = [checked(rest.get(f"/sessions/{each['id']}"), 200)["status"] for each in sessions]
    assert statuses == ["RUNNING", "RUNNING"]
    # The SBOM of each image names its version, and the packages of Debian.
    for name, version in zip(names, versions, strict=True):
        sbom = wait_until(lambda name=name: sbom_of(rest, name), 120, "the agent with the image")
        kinds = {(each["kind"], each["name"]): each["version"] for each in sbom["packages"]}
        assert kinds["pypi", "toolz"] == version
        assert ("deb", "openssh-server") in kinds and ("pypi", "jupyterlab") in kinds
        assert sbom["document"]["specVersion"] == "1.6"
    listed = bai(hub, tmp_path, "image", "sbom", names[1], "--package", "toolz")
    assert "toolz" in listed and "1.0.0" in listed and "jupyterlab" not in listed
    for session in sessions:
        stop(rest, session["id"])


def sbom_of(rest: httpx.Client, image: str) -> JSON | None:
    """Return the SBOM of an image; None until an agent has reported that it has the image."""
    response = rest.get(f"/images/{quote(image, safe='')}/sbom")
    return None if response.status_code == 409 else checked(response, 200)


def test_a_recipe_is_built_and_pushed(
    hub: RunningHub, docker_engine: DockerEngine, registry: TlsRegistry, tmp_path: Path
) -> None:
    rest, recipe = hub.rest("user"), tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "Dockerfile").write_text(
        "FROM base\nRUN echo made-by-a-recipe > /opt/made && id -u >> /opt/made\n"
    )
    # The SBOM contains a package of Debian and a package from PyPI.
    (recipe / "apt.txt").write_text("tree\n")
    (recipe / "requirements.txt").write_text("toolz==1.0.0\n")
    (recipe / "private.txt").write_text("not part of the recipe")
    words = ("from-recipe", str(recipe), "--image", mirror_image(docker_engine))
    shown = bai(hub, tmp_path, "custom-image", "build", *words, "-r", "cpu=1", "--wait")
    assert "made-by-a-recipe" in shown and f"built {registry.host}/custom/user/" in shown
    (made,) = checked(rest.get("/custom-images?name=from-recipe"), 200)["items"]
    assert made["digest"].startswith("sha256:")
    wait_for(rest, made["session_id"], "TERMINATED")

    # A new session pulls the image from the registry.
    docker_engine.run("rmi", "--force", made["image"])
    job = {"name": "recipe-job", "type": "batch", "project": "default", "image": made["image"]}
    used = "python3 -c 'import toolz; print(toolz.__version__)'; command -v tree"
    job |= {"resources": {"cpu": "1", "mem": "512m"}}
    job |= {"startup_command": f"cat /opt/made; id -un; {used}"}
    batch = checked(rest.post("/sessions", json=job), 201)
    assert wait_for(rest, batch["id"], "TERMINATED")["result"] == "success"
    assert log_of(rest, batch) == "made-by-a-recipe\n0\nwork\n1.0.0\n/usr/bin/tree\n"
    checked(rest.delete(f"/custom-images/{made['id']}"), 204)


def contains(archive: Path, text: bytes) -> bool:
    """Return whether a file of a saved image, or of one of its layers, contains a text."""
    with tarfile.open(archive) as saved:
        for member in saved:
            file = saved.extractfile(member) if member.isfile() else None
            # Skip Debian's layer, which is larger than 64 MiB: its documentation and programs
            # contain the words PRIVATE KEY.
            if file is None or member.size > 64 * 2**20:
                continue
            if text in file.read():
                return True
    return False
