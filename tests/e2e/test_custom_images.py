"""Sessions of an image without the platform's parts, and their commits, on the Docker engine."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LISTEN_ON_ALL_ADDRESSES
from tests.e2e.sessions import JSON, checked, start, stop, wait_for
from tests.e2e.test_batch import log_of
from tests.e2e.test_tunnel import command
from tests.hub import RunningHub
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.image_registry import PASSWORD, USERNAME, TlsRegistry, serving_registry
from tests.testbed.images import base_image
from tests.testbed.jupyter import JupyterServer
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

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
        "BAI_AGENT_RUNTIME_IMAGE": runtime_image,
        "BAI_BUILD_RECIPES": "1",
        "BAI_COMMIT_REGISTRY": "lab",
        "BAI_CONFIG": str(further),
        "BAI_REGISTRY_NETWORKS": "127.0.0.0/8",
    }
    running = RunningHub(home, engine="docker", environment=environment)
    try:
        running.start()
        with running.rest("admin") as admin:
            spec = {"name": base_image(docker_engine), "labels": {}}
            checked(admin.post("/images", json=spec), 201)
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


def test_a_recipe_is_built_and_pushed(
    hub: RunningHub, docker_engine: DockerEngine, registry: TlsRegistry, tmp_path: Path
) -> None:
    rest, recipe = hub.rest("user"), tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "Dockerfile").write_text(
        "FROM base\nRUN echo made-by-a-recipe > /opt/made && id -u >> /opt/made\n"
    )
    (recipe / "private.txt").write_text("not part of the recipe")
    words = ("from-recipe", str(recipe), "--image", base_image(docker_engine))
    shown = bai(hub, tmp_path, "custom-image", "build", *words, "-r", "cpu=1", "--wait")
    assert "made-by-a-recipe" in shown and f"built {registry.host}/custom/user/" in shown
    (made,) = checked(rest.get("/custom-images?name=from-recipe"), 200)["items"]
    assert made["digest"].startswith("sha256:")
    wait_for(rest, made["session_id"], "TERMINATED")

    # A new session pulls the image from the registry.
    docker_engine.run("rmi", "--force", made["image"])
    job = {"name": "recipe-job", "type": "batch", "project": "default", "image": made["image"]}
    job |= {"resources": {"cpu": "1", "mem": "512m"}, "startup_command": "cat /opt/made; id -un"}
    batch = checked(rest.post("/sessions", json=job), 201)
    assert wait_for(rest, batch["id"], "TERMINATED")["result"] == "success"
    assert log_of(rest, batch) == "made-by-a-recipe\n0\nwork\n"
    checked(rest.delete(f"/custom-images/{made['id']}"), 204)


def contains(archive: Path, text: bytes) -> bool:
    """Return whether a file of a saved image, or of one of its layers, contains a text."""
    with tarfile.open(archive) as saved:
        for member in saved:
            file = saved.extractfile(member) if member.isfile() else None
            # Debian's documentation and programs contain the words PRIVATE KEY.
            if file is None or member.size > 64 * 2**20:
                continue
            if text in file.read():
                return True
    return False
