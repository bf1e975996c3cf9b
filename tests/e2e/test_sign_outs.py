"""What a sign-out of any kind ends within 5 s: cookies, tokens, open websockets and streams."""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import websocket

from tests.hub import RunningHub, session_in
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

PASSWORD = "Correct-horse-7"
NEW_PASSWORD = "Another-horse-8"
LIMIT_SECONDS = 5


@pytest.fixture(scope="module")
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@dataclass(frozen=True)
class Person:
    """An account with one running session."""

    hub: RunningHub
    name: str
    session: dict[str, Any]

    @property
    def server(self) -> str:
        return f"/user/{self.name}/{self.session['hub_server']}/"

    @contextmanager
    def browser(self, password: str = PASSWORD) -> Iterator[httpx.Client]:
        """Sign in, and open the session and the page of the manager as a browser does."""
        with self.hub.sign_in(self.name, password) as client:
            client.follow_redirects = True
            assert client.get(self.server + "lab").status_code == 200
            page = client.get(f"/services/bai/sessions/{self.session['id']}")
            assert page.status_code == 200, page.text
            client.follow_redirects = False
            assert accepted(self, client) == {"hub", "manager", "session"}
            yield client

    def token(self, password: str = PASSWORD) -> str:
        body = {"name": self.name, "password": password}
        answer = httpx.post(f"{self.hub.api}/auth/token", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])


@pytest.fixture
def person(hub: RunningHub, admin: httpx.Client) -> Iterator[Person]:
    name = f"p-{uuid.uuid4().hex[:10]}"
    account = {
        "username": name,
        "email": f"{name}@example.org",
        "password": PASSWORD,
        "domain": "default",
        "projects": ["default"],
    }
    answer = admin.post("/users", json=account)
    assert answer.status_code == 201, answer.text
    spec = {
        "name": f"out-{secrets.token_hex(4)}",
        "project": "default",
        "owner": name,
        "resources": {"cpu": "1", "mem": "512m"},
    }
    body = {"name": name, "password": PASSWORD}
    token = httpx.post(f"{hub.api}/auth/token", json=body, timeout=30).json()["token"]
    own = {"Authorization": f"Bearer {token}"}
    del spec["owner"]
    made = httpx.post(f"{hub.api}/sessions", json=spec, headers=own, timeout=60)
    assert made.status_code == 201, made.text
    key = made.json()["id"]
    session = session_in(hub, "admin", key, "RUNNING", ended=("ERROR", "CANCELLED", "TERMINATED"))
    yield Person(hub, name, session)
    admin.delete(f"/sessions/{key}")
    session_in(hub, "admin", key, "TERMINATED")


def accepted(person: Person, client: httpx.Client) -> set[str]:
    """Return the parts that let in a browser with these cookies."""
    answers = {
        "hub": client.get("/hub/home"),
        "manager": client.get("/services/bai/api/v1/me"),
        "session": client.get(person.server + "api/contents?content=0"),
    }
    return {part for part, answer in answers.items() if answer.status_code == 200}


def replayed(person: Person, client: httpx.Client) -> httpx.Client:
    """Return a client with a copy of the cookies, which no answer can take from it."""
    cookies = [(c.name, c.value or "", c.path) for c in client.cookies.jar]
    copy = httpx.Client(base_url=person.hub.url, timeout=30)
    for name, value, path in cookies:
        copy.cookies.set(name, value, domain="127.0.0.1", path=path)
    return copy


@contextmanager
def open_websocket(person: Person, client: httpx.Client) -> Iterator[Callable[[], bool]]:
    """Open a websocket of the session; the block gets a function that says whether it is open."""
    url = person.hub.url.replace("http", "ws") + person.server + "api/events/subscribe"
    request = client.build_request("GET", person.server + "api/events/subscribe")
    header = {"Cookie": request.headers["Cookie"]}
    found = websocket.create_connection(url, header=header, origin=person.hub.url, timeout=60)
    closed = threading.Event()

    def read() -> None:
        try:
            while found.recv_data()[0] != websocket.ABNF.OPCODE_CLOSE:
                pass
        except (websocket.WebSocketException, OSError):
            pass
        closed.set()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        yield lambda: not closed.is_set()
    finally:
        found.close()
        reading.join(10)
        found.shutdown()


@contextmanager
def open_stream(person: Person, client: httpx.Client) -> Iterator[Callable[[], bool]]:
    """Follow the manager's events; the block gets a function that says whether they are open."""
    ended = threading.Event()
    with client.stream("GET", "/services/bai/api/v1/events", timeout=60) as response:
        lines = response.iter_lines()
        assert next(lines) == ": open"

        def read() -> None:
            try:
                for _ in lines:
                    pass
            except httpx.HTTPError:
                pass
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        yield lambda: not ended.is_set()


@contextmanager
def all_end(person: Person, client: httpx.Client) -> Iterator[None]:
    """Check that whatever ``client``'s cookies opened ends within 5 s after the block."""
    with ExitStack() as stack:
        copy = stack.enter_context(replayed(person, client))
        # Its own client: one that streams keeps a connection.
        streaming = stack.enter_context(replayed(person, client))
        is_open = [
            stack.enter_context(open_websocket(person, copy)),
            stack.enter_context(open_stream(person, streaming)),
        ]
        # A first request warms the caches that the answers to the next ones come from.
        assert accepted(person, copy) == {"hub", "manager", "session"}
        yield
        wait_until(
            lambda: not accepted(person, copy),
            LIMIT_SECONDS,
            "the cookies to be refused everywhere",
        )
        wait_until(
            lambda: not any(each() for each in is_open), LIMIT_SECONDS, "what was open to end"
        )


def is_accepted(person: Person, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{person.hub.api}/me", headers=headers, timeout=30)
    return answer.status_code == 200


def test_a_logout_ends_the_cookies_of_that_browser_alone(person: Person) -> None:
    token = person.token()
    with person.browser() as leaving, person.browser() as staying:
        with all_end(person, leaving):
            leaving.get("/hub/logout")
        assert accepted(person, staying) == {"hub", "manager", "session"}
        assert is_accepted(person, token)


def test_an_oauth_code_of_before_the_logout_is_worth_nothing(person: Person) -> None:
    with person.browser() as client:
        # A browser without the manager's cookie gets a code, and keeps it for later.
        for cookie in [c for c in client.cookies.jar if c.path.startswith("/services/bai")]:
            client.cookies.jar.clear(cookie.domain, cookie.path, cookie.name)
        answer = client.get(f"/services/bai/sessions/{person.session['id']}")
        answer = client.get(answer.headers["Location"])
        callback = answer.headers["Location"]
        assert "code=" in callback
        with replayed(person, client) as thief:
            client.get("/hub/logout")
            thief.get(callback)
            assert "manager" not in accepted(person, thief)
            wait_until(lambda: not accepted(person, thief), LIMIT_SECONDS, "the thief to be out")


def test_another_session_id_does_not_outlive_the_logout(person: Person) -> None:
    with person.browser() as client, replayed(person, client) as thief:
        for cookie in list(thief.cookies.jar):
            if cookie.name == "jupyterhub-session-id" or not cookie.path.startswith("/hub"):
                thief.cookies.jar.clear(cookie.domain, cookie.path, cookie.name)
        thief.cookies.set("jupyterhub-session-id", "chosen", domain="127.0.0.1", path="/")
        thief.follow_redirects = True
        thief.get(f"/services/bai/sessions/{person.session['id']}")
        assert "manager" in accepted(person, thief)
        client.get("/hub/logout")
        thief.follow_redirects = False
        wait_until(lambda: not accepted(person, thief), LIMIT_SECONDS, "the thief to be out")


def test_a_new_password_ends_all_other_sign_ins(person: Person) -> None:
    token = person.token()
    with person.browser() as other, person.browser() as own:
        with all_end(person, other):
            answer = person.hub.post_form(
                own,
                "/hub/change-password",
                old_password=PASSWORD,
                new_password=NEW_PASSWORD,
                repeat_password=NEW_PASSWORD,
            )
            assert answer.status_code == 200, answer.text
        assert accepted(person, own) == {"hub", "manager", "session"}
        # API tokens stay unless that is asked for.
        assert is_accepted(person, token)
        body = {"name": person.name, "old_password": NEW_PASSWORD, "new_password": PASSWORD}
        answer = httpx.post(
            f"{person.hub.api}/auth/password", json={**body, "revoke_tokens": True}, timeout=30
        )
        assert answer.status_code == 204, answer.text
        wait_until(lambda: not is_accepted(person, token), LIMIT_SECONDS, "the token to be refused")
        wait_until(lambda: not accepted(person, own), LIMIT_SECONDS, "the browser to be out")
    session_in(person.hub, "admin", person.session["id"], "RUNNING")


def test_a_reset_by_an_administrator_ends_everything_but_sessions(
    person: Person, admin: httpx.Client
) -> None:
    token = person.token()
    with person.browser() as client, all_end(person, client):
        answer = admin.patch(f"/users/{person.name}", json={"password": NEW_PASSWORD})
        assert answer.status_code == 200, answer.text
    wait_until(lambda: not is_accepted(person, token), LIMIT_SECONDS, "the token to be refused")
    with person.browser(NEW_PASSWORD) as client:
        # The session's own token was not revoked: its panel still reaches the manager.
        assert client.get(person.server + "bai/api/session").status_code == 200


@pytest.mark.parametrize("how", ["sign-out", "deactivated"])
def test_an_administrator_signs_somebody_out(person: Person, admin: httpx.Client, how: str) -> None:
    token = person.token()
    with person.browser() as client, all_end(person, client):
        if how == "sign-out":
            assert admin.post(f"/users/{person.name}/sign-out").status_code == 202
        else:
            answer = admin.patch(f"/users/{person.name}", json={"status": "inactive"})
            assert answer.status_code == 200, answer.text
    wait_until(lambda: not is_accepted(person, token), LIMIT_SECONDS, "the token to be refused")
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{person.hub.url}/hub/api/user", headers=headers, timeout=30)
    assert answer.status_code in (401, 403)


def test_at_most_as_many_browsers_as_the_policy_says(person: Person, admin: httpx.Client) -> None:
    policy = f"two-{secrets.token_hex(3)}"
    answer = admin.post("/user-policies", json={"name": policy, "max_concurrent_logins": 2})
    assert answer.status_code == 201, answer.text
    assert admin.patch(f"/users/{person.name}", json={"resource_policy": policy}).is_success
    with person.browser() as first, person.browser() as second:
        with all_end(person, first), person.browser() as third:
            assert accepted(person, second) == accepted(person, third)
        assert accepted(person, second) == {"hub", "manager", "session"}
    assert admin.patch(f"/users/{person.name}", json={"resource_policy": "default"}).is_success
    assert admin.delete(f"/user-policies/{policy}").status_code == 204
