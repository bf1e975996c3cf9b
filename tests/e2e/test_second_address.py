"""The client's IP address on the docker engine: allowed addresses, public shares, audit log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import checked, start, stop
from tests.hub import RunningHub
from tests.testbed import ComponentMissing, second_machine
from tests.testbed.second_machine import SecondMachine
from tests.testbed.skip import skip_or_fail

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

PASSWORD = "Correct-horse-7"
# Sends a request and prints the status code of the response, without following redirects.
REQUEST = """
import json, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
url, body, headers = json.loads(sys.argv[1])
data = None if body is None else json.dumps(body).encode()
headers = {"Content-Type": "application/json", **headers}
request = urllib.request.Request(url, data, headers)
try:
    print(urllib.request.build_opener(Stay).open(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
# Submits the sign-in form and prints the status code of the response.
SIGN_IN = """
import json, sys, httpx
url, name, password = json.loads(sys.argv[1])
with httpx.Client(base_url=url) as client:
    client.get("/hub/login")
    form = {"username": name, "password": password, "_xsrf": client.cookies["_xsrf"]}
    print(client.post("/hub/login", data=form).status_code)
"""


@pytest.fixture(scope="module")
def second_host() -> Iterator[SecondMachine]:
    try:
        with second_machine.running() as made:
            yield made
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)


@dataclass(frozen=True)
class Account:
    """An account that may sign in only from the second machine."""

    name: str
    body: dict[str, str]


@pytest.fixture
def account(docker_hub: RunningHub, second_host: SecondMachine) -> Account:
    name = f"p-{uuid.uuid4().hex[:10]}"
    fields = {"username": name, "email": f"{name}@example.org", "domain": "default"}
    fields |= {"password": PASSWORD}
    with docker_hub.rest("admin") as admin:
        allowed = [f"{second_host.address}/32"]
        checked(admin.post("/users", json={**fields, "allowed_client_ip": allowed}), 201)
    return Account(name, {"name": name, "password": PASSWORD})


def request_arguments(url: str, body: Any, **headers: str) -> str:
    return json.dumps([url, body, headers])


def test_with_docker_the_manager_sees_the_address_of_the_client(
    docker_hub: RunningHub, second_host: SecondMachine, account: Account
) -> None:
    outside = f"http://{second_host.peer_address}:{docker_hub.port}"
    tokens = "/services/bai/api/v1/auth/token"
    assert second_host.python(REQUEST, request_arguments(outside + tokens, account.body)) in (
        "200",
        "201",
    )
    assert second_host.python(SIGN_IN, json.dumps([outside, account.name, PASSWORD])) == "302"
    with docker_hub.rest("admin") as admin:
        query = {"actor": account.name, "sort": "-id"}
        entries = checked(admin.get("/audit-log", params=query), 200)["items"]
        addresses = {e["client_ip"] for e in entries if e["action"].startswith("sign-in.")}
        assert addresses == {second_host.address}
    # From this machine, the sign-in is rejected, even with headers that contain the other address.
    for header in ("X-Forwarded-For", "X-Real-Ip"):
        forged = {header: second_host.address}
        answer = httpx.post(docker_hub.url + tokens, json=account.body, headers=forged)
        assert answer.status_code in (401, 403), (header, answer.text)
        with docker_hub.client() as client:
            client.headers.update(forged)
            fields = {"username": account.name, "password": PASSWORD}
            answer = docker_hub.post_form(client, "/hub/login", **fields)
            assert answer.status_code == 403, (header, answer.status_code)


def test_sessions_cannot_forge_addresses_and_public_shares_use_the_real_address(
    docker_hub: RunningHub,
    docker_engine: DockerEngine,
    second_host: SecondMachine,
    account: Account,
) -> None:
    with docker_hub.rest("admin") as admin:
        policy = admin.get("/users/user").json()["resource_policy"]
        checked(admin.patch(f"/user-policies/{policy}", json={"app_sharing": "public"}), 200)
    rest = docker_hub.rest("user")
    session = start(rest, "addresses")
    try:
        container = f"bai-{session['id']}-main1"
        manager = "$BAI_MANAGER_URL/api/v1/auth/token"
        ask = request_arguments("MANAGER", account.body, **{"X-Forwarded-For": second_host.address})
        script = f'exec python -c "$0" "$(echo "$1" | sed "s|MANAGER|{manager}|")"'
        status = docker_engine.run("exec", container, "sh", "-c", script, REQUEST, ask)
        assert status in ("401", "403")
        share = {"app": "tensorboard", "public": True, "allowed_addresses": [second_host.address]}
        made = checked(rest.post(f"/sessions/{session['id']}/app-shares", json=share), 201)
        path = httpx.URL(made["url"]).raw_path.decode()
        outside = f"http://{second_host.peer_address}:{docker_hub.port}{path}"
        assert second_host.python(REQUEST, request_arguments(outside, None)) in ("302", "303")
        assert httpx.get(docker_hub.url + path).status_code == 404
    finally:
        stop(rest, session["id"])
