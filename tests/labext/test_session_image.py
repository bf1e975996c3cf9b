"""The real session image with the limits of a session: an arbitrary uid, no capabilities."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from tornado.httpclient import HTTPClientError

from tests.testbed.docker_engine import DockerEngine
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

UID = "12345:12345"
LIMITS = ["--user", UID, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]


@pytest.fixture(scope="module")
def container(docker_engine: DockerEngine, session_image: str) -> Iterator[tuple[str, int]]:
    port = free_port()
    name = docker_engine.run(
        *("run", "--detach", *LIMITS, "--publish", f"127.0.0.1:{port}:8888"),
        *("--env", "JUPYTER_TOKEN=secret", session_image),
        *("jupyter", "lab", "--ip=0.0.0.0", "--port=8888"),
    )
    try:
        yield name, port
    finally:
        docker_engine.run("rm", "--force", name)


@pytest.fixture(scope="module")
def server(docker_engine: DockerEngine, container: tuple[str, int]) -> JupyterServer:
    name, port = container
    server = JupyterServer(f"http://127.0.0.1:{port}/", "secret")
    try:
        wait_until(server.is_ready, 60, "JupyterLab in the container")
    except TimeoutError:
        pytest.fail(docker_engine.run("logs", name))
    return server


@pytest.mark.parametrize("path", ["lab", "vscode/", "vscode/healthz", "tensorboard/"])
def test_an_app_responds_to_its_owner_only(server: JupyterServer, path: str) -> None:
    assert server.page(path).status_code == 200
    assert server.get(path, token=None).status_code in (302, 403)
    assert server.get(path, token="wrong").status_code in (302, 403)


async def test_a_terminal_has_the_given_uid_and_a_user_name(server: JupyterServer) -> None:
    command = "echo $(id -u) $(id -un) $HOME $(grep CapEff /proc/self/status | cut -f2) do''ne"
    shown = await server.run_in_terminal(command, "done")
    assert "12345 work /home/work 0000000000000000 done" in shown


async def test_the_websocket_of_vs_code_opens_for_its_owner_only(server: JupyterServer) -> None:
    page = server.page("vscode/").text
    version = re.search(r"(stable-[0-9a-f]{40})", page)
    assert version is not None
    path = f"vscode/{version[1]}?reconnectionToken=0-0&reconnection=false&skipWebSocketFrames=false"
    with pytest.raises(HTTPClientError) as refused:
        async with server.websocket(path, token=None):
            pass
    # Jupyter redirects a request without a token to its login page, or denies it.
    assert refused.value.code in (302, 403)
    async with server.websocket(path):
        pass


async def test_a_terminal_opens_for_its_owner_only(server: JupyterServer) -> None:
    name = server.request("POST", "api/terminals").json()["name"]
    with pytest.raises(HTTPClientError) as refused:
        async with server.websocket(f"terminals/websocket/{name}", token=None):
            pass
    assert refused.value.code == 403


def test_sigterm_stops_a_container_within_ten_seconds(
    docker_engine: DockerEngine, session_image: str
) -> None:
    name = docker_engine.run("run", "--detach", *LIMITS, session_image, "sleep", "600")
    try:
        started = time.monotonic()
        docker_engine.run("stop", "--time", "20", name)
        assert time.monotonic() - started < 10
    finally:
        docker_engine.run("rm", "--force", name)


def test_the_image_contains_no_build_tools_and_no_client_settings(
    docker_engine: DockerEngine, session_image: str
) -> None:
    search = (
        (
            "for tool in gcc g++ make npm; do command -v $tool; done;"
            # Gradio's published package contains such files; they do not come from our build.
            "find / -xdev -path '*/site-packages/gradio' -prune -o"
            " ( -name pip.conf -o -name .npmrc -o -name .package-lock.json ) -print;"
            "ls -d /client /node /src 2>/dev/null; true"
        )
        .replace("(", "'('")
        .replace(")", "')'")
    )
    command = ["--entrypoint", "sh", "--user", "0", session_image, "-c", search]
    assert docker_engine.run("run", "--rm", "--network", "none", *command) == ""
