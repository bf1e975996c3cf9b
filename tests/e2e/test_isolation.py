"""Isolation of two users on one machine: apps, files, processes and network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from bai_labext.apps.catalogue import CATALOGUE
from tests.e2e.sessions import checked, start, stop
from tests.hub import RunningHub
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.wait import wait_until
from tests.testbed.websocket import open_websocket

pytestmark = pytest.mark.e2e


@pytest.fixture
def two_sessions(
    any_hub: RunningHub,
) -> Iterator[tuple[RunningHub, dict[str, Any], dict[str, Any]]]:
    mine, theirs = any_hub.rest("user"), any_hub.rest("user2")
    first, second = start(mine, "isolated-a"), start(theirs, "isolated-b")
    yield any_hub, first, second
    stop(mine, first["id"])
    stop(theirs, second["id"])


async def test_apps_are_closed_to_other_users(
    two_sessions: tuple[RunningHub, dict[str, Any], dict[str, Any]],
) -> None:
    hub, session, _ = two_sessions
    url = hub.url + session["url"]
    owner = hub.rest("user").headers["Authorization"]
    other = hub.rest("user2").headers["Authorization"]
    sockets = url.replace("http:", "ws:")
    socket = f"{sockets}api/events/subscribe"
    apps = sorted({app.path.format(port=app.port or 8501) for app in CATALOGUE})
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        # Skip the apps that the image does not contain: for these, even the session's owner gets
        # status 404.
        answers = {path: await http.get(path, headers={"Authorization": owner}) for path in apps}
        apps = [path for path, answer in answers.items() if answer.status_code != 404]
        assert {"lab", "tensorboard/"} <= set(apps)
        for path in ("api/status", "api/terminals", "proxy/22/", *apps):
            for headers in ({}, {"Authorization": other}):
                answer = await http.get(path, headers=headers)
                # The response is a redirect to the sign-in, or denies access; it has no content of
                # the app.
                assert answer.status_code in (302, 401, 403), (path, answer.status_code)
        answer = await http.get("api/status", headers={"Authorization": owner})
        assert answer.status_code == 200

    for headers in ({}, {"Authorization": other}):
        for address in (
            socket,
            *(f"{sockets}{path.rstrip('/')}/ws" for path in filter(None, apps)),
        ):
            with pytest.raises(HTTPClientError) as refused:
                await websocket_connect(HTTPRequest(address, headers=headers))
            assert refused.value.code in (302, 401, 403), address
    async with open_websocket(url + "api/events/subscribe", owner):
        pass


async def run_inside(hub: RunningHub, username: str, session: dict[str, Any], code: str) -> str:
    """Run Python in a kernel of the session and return its output."""
    headers = {"Authorization": hub.rest(username).headers["Authorization"]}
    url = hub.url + session["url"]
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        kernel = checked(await http.post("api/kernels", json={"name": "python3"}), 201)["id"]
        message = {
            "header": {"msg_id": "1", "msg_type": "execute_request", "version": "5.3"},
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False},
            "channel": "shell",
        }
        async with open_websocket(
            f"{url}api/kernels/{kernel}/channels", headers["Authorization"]
        ) as socket:
            await socket.write_message(json.dumps(message))
            text = ""
            while (raw := await socket.read_message()) is not None:
                answer = json.loads(raw)
                if answer["parent_header"].get("msg_id") != "1":
                    continue
                content = answer["content"]
                if answer["msg_type"] == "stream":
                    text += content["text"]
                if answer["msg_type"] == "error":
                    raise AssertionError("\n".join(content["traceback"]))
                if answer["msg_type"] == "status" and content["execution_state"] == "idle":
                    break
        checked(await http.delete(f"api/kernels/{kernel}"), 204)
    return text.strip()


async def test_files_and_processes_are_closed_to_other_users(
    two_sessions: tuple[RunningHub, dict[str, Any], dict[str, Any]],
) -> None:
    hub, first, second = two_sessions
    await run_inside(hub, "user", first, "open('/home/work/mine.txt', 'w').write('content')")
    search = """
import os, subprocess
paths = []
for base in ("/home", "/tmp", "/var/tmp", "/dev/shm", os.environ.get("BAI_HOME", "/nowhere")):
    for folder, _, files in os.walk(base):
        for name in files:
            if name == "mine.txt":
                paths.append(os.path.join(folder, name))
ids = set()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/environ").read().split("\\0")
        ids |= {word for word in words if "BAI_SESSION_ID=" in word}
    except OSError:
        pass
print(paths, sorted(ids))
"""
    # Positive control: in the owner's session, the search finds the file.
    assert "/home/work/mine.txt" in await run_inside(hub, "user", first, search)
    seen = await run_inside(hub, "user2", second, search)
    assert seen == str([]) + " " + str([f"BAI_SESSION_ID={second['id']}"])


@pytest.mark.docker
async def test_the_network_is_closed_to_other_users(docker_hub: RunningHub) -> None:
    mine, theirs = docker_hub.rest("user"), docker_hub.rest("user2")
    first, second = start(mine, "network-a"), start(theirs, "network-b")
    # Start the server in its own process group: a kernel that ends kills all processes of its
    # group. The server ends with its container.
    listen = """
import socket, subprocess, sys
serve = "import socket; s = socket.create_server(('0.0.0.0', 9999)); print(flush=True)"
server = subprocess.Popen(
    [sys.executable, "-c", serve + "\\nwhile True: s.accept()"],
    stdout=subprocess.PIPE,
    start_new_session=True,
)
server.stdout.readline()
print(socket.gethostbyname(socket.gethostname()))
"""
    address = await run_inside(docker_hub, "user", first, listen)
    reach = f"""
import socket
try:
    socket.create_connection(({address!r}, 9999), timeout=3)
    print("reached")
except OSError as error:
    print("closed")
"""
    assert await run_inside(docker_hub, "user", first, reach) == "reached"
    assert await run_inside(docker_hub, "user2", second, reach) == "closed"
    port_of_jupyter = reach.replace("9999", "8888")
    assert await run_inside(docker_hub, "user2", second, port_of_jupyter) == "closed"
    stop(mine, first["id"])
    stop(theirs, second["id"])


@pytest.mark.docker
async def test_replicas_are_closed_to_sessions_of_others(
    docker_hub: RunningHub, docker_engine: DockerEngine
) -> None:
    """Replicas can be reached only through the gateway, not through their network or a port of the
    machine.
    """
    mine, theirs, name = docker_hub.rest("user"), docker_hub.rest("user2"), "isolated-replica"
    settings = {
        "variant": "cmd",
        "command": "exec python3 -m http.server --bind 127.0.0.1 $PORT",
        "request": {"resources": {"cpu": "1", "mem": "256m"}},
    }
    checked(mine.post("/endpoints", json={"name": name, "settings": settings}), 201)
    second = start(theirs, "network-c")

    def ready() -> str:
        found = checked(mine.get(f"/endpoints/{name}/replicas"), 200)["items"]
        return next((each["id"] for each in found if each["phase"] == "ready"), "")

    try:
        key = wait_until(ready, 180, "a replica")
        filters = {"label": f"bai.session-id={key}"}
        (container,) = docker_engine.client.containers.list(filters=filters)
        networks = container.attrs["NetworkSettings"]
        assert not any(networks["Ports"].values()), "no port is published on the machine"
        token = (docker_hub.home / "secrets" / "gateway-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(timeout=10) as http:
            answer = await http.get(f"{docker_hub.api}/gateway/routes", headers=headers)
        table = checked(answer, 200)
        (url,) = (each["replicas"][0]["url"] for each in table["endpoints"] if each["name"] == name)
        target = urlsplit(url).hostname, urlsplit(url).port
        reach = f"""
import socket
try:
    socket.create_connection({target}, timeout=3)
    print("reached")
except OSError:
    print("closed")
"""
        assert await run_inside(docker_hub, "user2", second, reach) == "closed"
        # Positive control: the machine of the gateway reaches the replica. The request fails
        # without the secret.
        async with httpx.AsyncClient(timeout=10) as http:
            response = await http.get(url)
        assert response.status_code in (302, 401, 403), response.status_code
    finally:
        checked(mine.delete(f"/endpoints/{name}"), 200)
        stop(theirs, second["id"])
