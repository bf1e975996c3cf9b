"""Endpoints on both engines, called through their gateway: rollouts, scaling, tokens, access."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from bai_services.system.ports import free_port
from tests.e2e.sessions import checked
from tests.hub import ROOT, RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

NAME = "e2e-serving"
SERVER = "echo '{text}' > index.html; exec python3 -m http.server --bind 127.0.0.1 $PORT"
# Responds after one second, so that few clients cause a high load; it reads the bodies of requests.
SLOW_SERVER = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(1)
        self.send_response(200)
        if self.path == "/endless":
            self.end_headers()
            while True:
                self.wfile.write(b"part")
                time.sleep(0.1)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 65536)))
        self.do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
# Healthy, but all other responses are errors.
FAILING_SERVER = """exec python3 -c '
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
'"""
HEALTH = {"health": {"path": "/index.html"}}
CANARY_REQUESTS = 2000
CANARY_CLIENTS = 8
# Uses more memory than SMALL; each page is written.
USE_MEMORY = """kept = []
while True: kept.append(b"x" * 10_000_000)"""
SMALL = {"resources": {"cpu": "1", "mem": "256m"}}
BODY_BYTES = 100 * 2**20
# Time in which gateways must end the streams of a revoked token; on an idle machine, they need at
# most 5 s.
REVOKE_SECONDS = 10


class Load:
    """Calls an endpoint repeatedly in a thread. Every response must be 200, but ``interrupted``
    responses may be 502: their replica is killed during the request.
    """

    def __init__(self, url: str, headers: dict[str, str], interrupted: int = 0) -> None:
        self.texts: list[str] = []
        self._left = interrupted
        self._url = url
        self._client = httpx.Client(headers=headers, timeout=60)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._problem: str | None = None

    def _run(self) -> None:
        # The pause leaves CPU time to the replicas that start.
        while self._problem is None and not self._is_over.wait(0.05):
            try:
                response = self._client.get(self._url)
                if response.status_code == 502 and self._left:
                    self._left -= 1
                    continue
                if response.status_code != 200:
                    self._problem = f"{response.status_code}: {response.text}"
                self.texts.append(response.text.strip())
            except httpx.HTTPError as error:
                self._problem = repr(error)

    def check(self) -> None:
        assert self._problem is None, self._problem

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()


@contextmanager
def endpoint(rest: httpx.Client, name: str, **fields: Any) -> Iterator[str]:
    """Create an endpoint, yield a token for it, and delete it at the end."""
    settings = {"variant": "cmd", "request": SMALL, **fields.pop("settings")}
    checked(rest.post("/endpoints", json={"name": name, "settings": settings, **fields}), 201)
    try:
        made = checked(rest.post(f"/endpoints/{name}/tokens", json={"name": "test"}), 201)
        yield made["token"]
    finally:
        if rest.get(f"/endpoints/{name}").status_code == 200:
            checked(rest.delete(f"/endpoints/{name}"), 200)
        is_deleted = lambda: rest.get(f"/endpoints/{name}").status_code == 404  # noqa: E731
        wait_until(is_deleted, 120, "the deletion")


@pytest.mark.checklist("SRV-15")
def test_endpoint_serves_rolls_out_revisions_under_load_and_ends(any_hub: RunningHub) -> None:
    settings = {"command": SERVER.format(text="first"), "health": {"path": "/index.html"}}
    path = f"/services/bai-serve/{NAME}/index.html"
    url = any_hub.url + path
    with any_hub.rest("user") as rest, endpoint(rest, NAME, settings=settings) as token:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=any_hub.url, timeout=30, headers=headers) as calls:
            wait_until(lambda: calls.get(path).status_code != 401, 10, "the token to be valid")
            wait_for_text(calls, path, "first")
            strangers_are_refused(any_hub, path)
            first = replica(any_hub)
            # The replica cannot be reached without its secret.
            assert httpx.get(f"{first['url']}/index.html").status_code == 302
            with Load(url, headers) as load:
                roll_out(rest, command=SERVER.format(text="second"))
                wait_until(lambda: load.check() or "second" in load.texts, 180, "the new revision")
                wait_for_outcome(rest, 2, "completed")
                # A revision that fails its health check is rolled back.
                roll_out(rest, health={"path": "/nothing", "start_seconds": 1})
                wait_for_outcome(rest, 3, "rolled-back")
            load.check()
            assert set(load.texts) == {"first", "second"}
            assert load.texts[-1] == "second"
            shown = checked(rest.get(f"/endpoints/{NAME}"), 200)
            assert (shown["active_revision"], shown["errors"]) == (2, 0)
            checked(rest.delete(f"/endpoints/{NAME}/tokens/test"), 204)
            wait_until(lambda: calls.get(path).status_code == 401, 10, "the revocation")
            checked(rest.delete(f"/endpoints/{NAME}"), 200)
            is_deleted = lambda: rest.get(f"/endpoints/{NAME}").status_code == 404  # noqa: E731
            wait_until(is_deleted, 120, "the deletion")
            assert calls.get(path).status_code == 404
        status = checked(rest.get(f"/sessions/{first['id']}"), 200)["status"]
        assert status in ("TERMINATED", "ERROR"), status


def roll_out(rest: httpx.Client, rollout: dict[str, Any] | None = None, **settings: Any) -> None:
    body = {"settings": {**settings, "rollout": rollout or {"max_failures": 1}}}
    checked(rest.post(f"/endpoints/{NAME}/revisions", json=body), 201)


def wait_for_outcome(rest: httpx.Client, number: int, outcome: str) -> None:
    def has_outcome() -> bool:
        shown = revision(rest, number)
        assert shown["outcome"] in (None, outcome), shown
        return bool(shown["outcome"] == outcome)

    wait_until(has_outcome, 180, f"revision {number} to be {outcome}")


def test_canary_gets_its_share_and_blue_green_switches_at_once(hub: RunningHub) -> None:
    """A canary is promoted by its owner, another one is rolled back because of its errors; then a
    blue-green rollout replaces the revision. No request is lost.
    """
    settings = {"command": SERVER.format(text="first"), **HEALTH}
    canary = {"strategy": "canary", "canary_percent": 10}
    path = f"/services/bai-serve/{NAME}/index.html"
    with hub.rest("user") as rest, endpoint(rest, NAME, settings=settings) as token:
        headers = {"Authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=CANARY_CLIENTS)
        with httpx.Client(base_url=hub.url, timeout=60, headers=headers, limits=limits) as calls:
            wait_until(lambda: calls.get(path).status_code != 401, 10, "the token to be valid")
            wait_for_text(calls, path, "first")
            manual = {**canary, "is_automatic": False}
            roll_out(rest, manual, command=SERVER.format(text="second"))
            wait_for_text(calls, path, "second")
            texts = texts_of(calls, path, CANARY_REQUESTS)
            assert set(texts) == {"first", "second"}
            assert abs(texts.count("second") / CANARY_REQUESTS - 0.1) < 0.01
            promote(rest, 2)
            wait_until(lambda: set(texts_of(calls, path, 20)) == {"second"}, 30, "the promotion")
            # The health check of this revision passes, but its other responses are errors.
            bounds = {**canary, "max_error_percent": 20, "min_requests": 20}
            roll_out(rest, bounds, command=FAILING_SERVER, health={"path": "/health"})
            failed = 0
            while (outcome := revision(rest, 3)["outcome"]) is None:
                failed += calls.get(path).status_code == 500
            assert (outcome, failed > 0) == ("rolled-back", True)
            assert "failed of" in revision(rest, 3)["reason"]
            switch = {"strategy": "blue-green", "is_automatic": False}
            with Load(hub.url + path, headers) as load:
                roll_out(rest, switch, command=SERVER.format(text="fourth"), **HEALTH)
                wait_until(lambda: load.check() or has_ready(rest, 4), 180, "the new replica")
                assert set(texts_of(calls, path, 50)) == {"second"}
                promote(rest, 4)
                wait_until(lambda: set(texts_of(calls, path, 20)) == {"fourth"}, 30, "the switch")
            load.check()
            assert set(load.texts) == {"second", "fourth"}
            # All requests with the new revision follow all with the former one.
            assert load.texts == sorted(load.texts, key=["second", "fourth"].index)


def texts_of(calls: httpx.Client, path: str, count: int) -> list[str]:
    """Send requests from several threads, and return the responses, which all have status 200."""
    with ThreadPoolExecutor(CANARY_CLIENTS) as pool:
        responses = list(pool.map(lambda _: calls.get(path), range(count)))
    assert {response.status_code for response in responses} == {200}
    return [response.text.strip() for response in responses]


def promote(rest: httpx.Client, number: int) -> None:
    checked(rest.post(f"/endpoints/{NAME}/promotion"), 200, 201, 202, 204)
    wait_for_outcome(rest, number, "completed")


def has_ready(rest: httpx.Client, number: int) -> bool:
    """Return whether a revision has a ready replica."""
    found = checked(rest.get(f"/endpoints/{NAME}/replicas"), 200)["items"]
    return any(each["revision"] == number and each["phase"] == "ready" for each in found)


def revision(rest: httpx.Client, number: int) -> dict[str, Any]:
    found = checked(rest.get(f"/endpoints/{NAME}/revisions"), 200)["items"]
    (shown,) = [each for each in found if each["number"] == number]
    return dict(shown)


def strangers_are_refused(hub: RunningHub, path: str) -> None:
    """Check that neither anonymous callers nor members of another project reach the endpoint."""
    with hub.rest("acme-user") as rest:
        token = rest.headers["Authorization"]
        for part in ("", "/revisions", "/replicas", "/scalings", "/tokens"):
            assert rest.get(f"/endpoints/{NAME}{part}").status_code == 404
            assert httpx.get(f"{hub.api}/endpoints/{NAME}{part}").status_code == 401
    for headers in ({}, {"Authorization": token}):
        response = httpx.get(hub.url + path, headers=headers)
        assert response.status_code == 401, response.text


@pytest.mark.docker
def test_replicas_follow_the_load_from_zero_to_three_and_back(docker_hub: RunningHub) -> None:
    name = "e2e-scaling"
    rule = {
        "min_replicas": 0, "max_replicas": 3, "target": 1, "utilization": 1, "stable_seconds": 10,
        "panic_seconds": 2, "idle_seconds": 10,
    }  # fmt: skip
    # The shell passes the script as one argument, although it has several lines.
    settings = {"command": f"exec python3 -c '{SLOW_SERVER}'", "health": {"path": "/"}}
    with (
        docker_hub.rest("user") as rest,
        endpoint(rest, name, settings=settings, scaling=rule) as token,
        httpx.Client(
            base_url=f"{docker_hub.url}/services/bai-serve/{name}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=120,
        ) as calls,
        ThreadPoolExecutor(3) as clients,
    ):

        def wait_for_replicas(count: int) -> None:
            def is_reached() -> bool:
                shown = checked(rest.get(f"/endpoints/{name}"), 200)
                return (shown["ready_replicas"], shown["starting_replicas"]) == (count, 0)

            wait_until(is_reached, 120, f"{count} replicas")

        wait_for_replicas(1)
        wait_for_replicas(0)
        # The gateway holds the first request until a replica serves. Its body is large.
        response = calls.post("/", content=bytes(BODY_BYTES))
        assert (response.status_code, response.text) == (200, "ok")
        revoke_during_a_stream(rest, calls, name)
        is_over = threading.Event()

        def call() -> set[int]:
            found = set()
            while not is_over.is_set():
                found.add(calls.get("/slow").status_code)
            return found

        running = [clients.submit(call) for _ in range(3)]
        try:
            wait_for_replicas(3)
        finally:
            is_over.set()
        assert [each.result() for each in running] == [{200}] * 3
        wait_for_replicas(0)
        changes = checked(rest.get(f"/endpoints/{name}/scalings?sort=created_at"), 200)["items"]
        numbers = [each["replicas"] for each in changes]
        assert numbers[0] == numbers[-1] == 0
        assert max(numbers) == 3


def revoke_during_a_stream(rest: httpx.Client, calls: httpx.Client, name: str) -> None:
    made = checked(rest.post(f"/endpoints/{name}/tokens", json={"name": "stream"}), 201)
    headers = {"Authorization": f"Bearer {made['token']}"}
    is_valid = lambda: calls.get("/", headers=headers).status_code == 200  # noqa: E731
    wait_until(is_valid, 10, "the token to be valid")
    with calls.stream("GET", "/endless", headers=headers) as response:
        parts = response.iter_raw()
        assert next(parts)
        checked(rest.delete(f"/endpoints/{name}/tokens/stream"), 204)
        began = time.monotonic()
        with pytest.raises(httpx.TransportError):
            for _ in parts:
                assert time.monotonic() - began < REVOKE_SECONDS


def wait_for_text(calls: httpx.Client, path: str, text: str) -> None:
    """Call the endpoint until its replica responds with the text; calls may only fail with 503."""

    def responds() -> bool:
        response = calls.get(path)
        assert response.status_code in (200, 503), response.text
        return response.text.strip() == text

    wait_until(responds, 180, f"a replica that responds {text}")


def replica(hub: RunningHub) -> dict[str, Any]:
    """Return the only replica from the routing table."""
    token = (hub.home / "secrets" / "gateway-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    table = checked(httpx.get(f"{hub.api}/gateway/routes", headers=headers), 200)
    (found,) = (each["replicas"] for each in table["endpoints"] if each["name"] == NAME)
    (only,) = found
    return dict(only)


def test_trials_explain_why_they_are_unhealthy(any_hub: RunningHub) -> None:
    """All definitions are tried at the same time; their sessions end afterwards."""
    server = "exec python3 -m http.server --bind 127.0.0.1"
    causes: list[tuple[str, str, dict[str, Any]]] = [
        ("user", "trial-command-not-found", {"command": "no-such-server --port $PORT"}),
        ("user", "trial-other-port", {"command": f"{server} {free_port()}"}),
        ("user", "trial-no-path", {"command": f"{server} $PORT"}),
    ]
    if any_hub.engine == "docker":
        # Failures that only the Docker engine has: it pulls images and limits the memory of a
        # session.
        image = f"127.0.0.1:{free_port()}/no-such-model:1"
        request = {**SMALL, "image": image}
        use_memory = {
            "command": f"exec python3 -c '{USE_MEMORY}'",
            "health": {"path": "/", "start_seconds": 120},
        }
        causes += [
            ("user2", "trial-no-image", {"command": server, "request": request}),
            ("user2", "trial-out-of-memory", use_memory),
        ]
        with any_hub.rest("admin") as admin:
            checked(admin.post("/images", json={"name": image, "labels": {}}), 201)
    with any_hub.rest("user") as user, any_hub.rest("user2") as user2:
        clients = {"user": user, "user2": user2}
        trials = []
        for owner, cause, more in causes:
            settings = {
                "variant": "cmd",
                "health": {"path": "/missing", "start_seconds": 5},
                "request": SMALL,
                **more,
            }
            made = checked(
                clients[owner].post("/endpoint-trials", json={"settings": settings}), 201
            )
            trials.append((clients[owner], made["id"], cause))
        for rest, trial, cause in trials:
            read = lambda: checked(rest.get(f"/endpoint-trials/{trial}"), 200)  # noqa: B023, E731
            wait_until(lambda: read()["ended_at"], 180, "the end of the trial")  # noqa: B023
            found = read()
            assert (found["is_healthy"], found["state_coded"]["code"]) == (False, cause), found
            assert found["log"] or cause in ("trial-no-image", "trial-out-of-memory"), found
            ended = lambda: checked(rest.get(f"/sessions/{trial}"), 200)["status"]  # noqa: B023, E731
            wait_until(lambda: ended() in ("TERMINATED", "ERROR"), 60, "its session")  # noqa: B023


@contextmanager
def further_agent(hub: RunningHub, home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run another agent of the demo; yield its id and its process, and delete it at the end."""
    name = "e2e-serving-agent"
    environment = {
        **hub.process_of("agent").environ(),
        "BAI_HOME": str(home),
        "BAI_AGENT_ID": name,
        "BAI_AGENT_CPU": "2",
        "BAI_AGENT_SIMULATED_GPUS": "0",
    }
    with open(home / "agent.log", "wb") as output:
        process = psutil.Popen(
            [sys.executable, "-m", "bai_services.agent"],
            cwd=ROOT, env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    with hub.rest("admin") as rest:
        try:
            is_alive = lambda: status_of_agent(rest, name) == "ALIVE"  # noqa: E731
            wait_until(is_alive, 60, "the heartbeat of the agent")
            yield name, process
        finally:
            process.kill()
            process.wait()
            is_lost = lambda: status_of_agent(rest, name) == "LOST"  # noqa: E731
            wait_until(is_lost, 90, "the agent to be LOST")
            is_deleted = lambda: rest.delete(f"/agents/{name}").status_code == 204  # noqa: E731
            wait_until(is_deleted, 60, "the deletion of the agent")


def status_of_agent(rest: httpx.Client, name: str) -> str:
    response = rest.get(f"/agents/{name}")
    return str(response.json()["status"]) if response.status_code == 200 else ""


def replicas_of(rest: httpx.Client, name: str) -> dict[str, str | None]:
    """Return the agents of the ready replicas of an endpoint, by id."""
    found = checked(rest.get(f"/endpoints/{name}/replicas"), 200)["items"]
    return {each["id"]: each["agent"] for each in found if each["phase"] == "ready"}


def test_replica_of_a_lost_agent_is_replaced_while_the_other_one_serves(
    any_hub: RunningHub, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Kill the agent and all processes of its sessions, as if its machine had failed."""
    hub, name = any_hub, "e2e-agent-lost"
    settings = {
        "command": SERVER.format(text="served"),
        "health": {"path": "/index.html", "interval_seconds": 1, "max_failures": 2},
    }
    url = f"{hub.url}/services/bai-serve/{name}/index.html"
    with (
        hub.rest("user") as rest,
        hub.rest("admin") as admin,
        endpoint(rest, name, settings=settings) as token,
    ):
        wait_until(lambda: len(replicas_of(rest, name)) == 1, 180, "the first replica")
        (first,), (own_agent,) = zip(*replicas_of(rest, name).items(), strict=True)
        with further_agent(hub, tmp_path) as (agent, process):
            checked(admin.patch(f"/agents/{own_agent}", json={"schedulable": False}), 200)
            try:
                checked(rest.patch(f"/endpoints/{name}", json={"replicas": 2}), 200)
                wait_until(lambda: len(replicas_of(rest, name)) == 2, 180, "the second replica")
            finally:
                checked(admin.patch(f"/agents/{own_agent}", json={"schedulable": True}), 200)
            shown = replicas_of(rest, name)
            (lost,) = shown.keys() - {first}
            assert shown[lost] == agent
            with Load(url, {"Authorization": f"Bearer {token}"}, interrupted=1) as load:
                wait_until(lambda: load.check() or load.texts, 30, "the first response")
                kill_machine(request, process, hub, lost)

                def is_replaced() -> bool:
                    load.check()
                    found = replicas_of(rest, name)
                    return len(found) == 2 and lost not in found

                wait_until(is_replaced, 180, "another replica in place of the lost one")
            load.check()
            assert set(replicas_of(rest, name).values()) == {own_agent}
            assert set(load.texts) == {"served"}


def kill_machine(
    request: pytest.FixtureRequest, agent: psutil.Process, hub: RunningHub, session: str
) -> None:
    """Kill an agent and the processes of its session. On the Docker engine, kill the container."""
    if hub.engine == "docker":
        agent.kill()
        client = request.getfixturevalue("docker_engine").client
        (container,) = client.containers.list(filters={"label": f"bai.session-id={session}"})
        container.kill()
        return
    killed = [agent]
    for process in hub.left_running():
        with suppress(psutil.Error):
            if process.environ().get("BAI_SESSION_ID") == session:
                killed.append(process)
    assert len(killed) > 1
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def test_endpoint_beyond_a_quota_names_it_and_serves_with_fewer_replicas(
    any_hub: RunningHub,
) -> None:
    hub, name, policy = any_hub, "e2e-quota", "e2e-two-sessions"
    settings = {
        "command": SERVER.format(text="served"),
        "health": {"path": "/index.html"},
    }
    with hub.rest("user2") as rest, hub.rest("admin") as admin:
        keypairs = checked(admin.get("/keypairs?user=user2"), 200)["items"]
        (keypair,) = [each for each in keypairs if each["is_main"]]
        limits = {"max_concurrent_sessions": 2, "default_for_unspecified": "UNLIMITED"}
        checked(admin.post("/keypair-policies", json={"name": policy, **limits}), 201)
        key = f"/keypairs/{keypair['access_key']}"
        former = keypair["resource_policy"]
        checked(admin.patch(key, json={"resource_policy": policy}), 200)
        try:
            with endpoint(rest, name, settings=settings, replicas=3) as token:

                def is_reported() -> str:
                    ready = len(replicas_of(rest, name))
                    found = checked(rest.get(f"/endpoints/{name}/replicas"), 200)["items"]
                    waiting = [each["reason"] for each in found if each["phase"] == "starting"]
                    return waiting[0] if ready == 2 and waiting else ""

                reason = wait_until(is_reported, 180, "two replicas and the reason of the third")
                assert policy in reason, reason
                url = f"{hub.url}/services/bai-serve/{name}/index.html"
                response = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
                assert (response.status_code, response.text.strip()) == (200, "served")
        finally:
            checked(admin.patch(key, json={"resource_policy": former}), 200)
            checked(admin.delete(f"/keypair-policies/{policy}"), 204)
