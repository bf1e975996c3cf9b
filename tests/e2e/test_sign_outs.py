"""Sign-outs invalidate cookies and close websockets and streams within 5 s.

Some sign-outs also revoke API tokens.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import websocket

from bai_services.i18n.catalogue import translator
from tests.hub import RunningHub, session_in
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

PASSWORD = "Correct-horse-7"
NEW_PASSWORD = "Another-horse-8"
LIMIT_SECONDS = 5
ENGLISH = translator("en")


@pytest.fixture(scope="module")
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@dataclass(frozen=True)
class Account:
    """An account with one running session."""

    hub: RunningHub
    name: str
    session: dict[str, Any]

    @property
    def server(self) -> str:
        return f"/user/{self.name}/{self.session['hub_server']}/"

    @contextmanager
    def browser(
        self, password: str = PASSWORD, *, confirms: bool = False
    ) -> Iterator[httpx.Client]:
        """Sign in, and open the session and its page in the manager, like a browser.

        With ``confirms``, the sign-in ends another one, so the Hub asks for a confirmation.
        """
        signing_in = (
            self._confirmed_sign_in() if confirms else self.hub.sign_in(self.name, password)
        )
        with signing_in as client:
            client.follow_redirects = True
            assert client.get(self.server + "lab").status_code == 200
            page = client.get(f"/services/bai/sessions/{self.session['id']}")
            assert page.status_code == 200, page.text
            client.follow_redirects = False
            assert accepting_components(self, client) == {"hub", "manager", "session"}
            yield client

    @contextmanager
    def _confirmed_sign_in(self) -> Iterator[httpx.Client]:
        with self.hub.client() as client:
            fields = {"username": self.name, "password": PASSWORD}
            page = self.hub.post_form(client, "/hub/login", **fields)
            assert page.status_code == 409, page.text
            pending = re.search(r'name="pending" value="([^"]+)"', page.text)
            assert pending is not None
            cookie = next(c for c in page.headers.get_list("Set-Cookie") if "bai_pending=" in c)
            for attribute in ("HttpOnly", "SameSite=Strict", "Max-Age=120", "Path=/hub/;"):
                assert attribute in cookie
            with self.hub.client() as other:
                # Only the browser that sent the password can confirm the sign-in, and only once.
                for sender, status in ((other, 403), (client, 302), (client, 403), (other, 403)):
                    answer = self.hub.post_form(sender, "/hub/login", pending=pending[1])
                    assert answer.status_code == status, answer.text
            yield client

    def token(self, password: str = PASSWORD) -> str:
        return new_token(self.hub, self.name, password)


def new_token(hub: RunningHub, name: str, password: str) -> str:
    body = {"name": name, "password": password}
    answer = httpx.post(f"{hub.api}/auth/token", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


@pytest.fixture
def account(hub: RunningHub, admin: httpx.Client) -> Iterator[Account]:
    name = f"p-{uuid.uuid4().hex[:10]}"
    fields = {
        "username": name,
        "email": f"{name}@example.org",
        "password": PASSWORD,
        "domain": "default",
        "projects": ["default"],
    }
    answer = admin.post("/users", json=fields)
    assert answer.status_code == 201, answer.text
    spec = {
        "name": f"out-{secrets.token_hex(4)}",
        "project": "default",
        "resources": {"cpu": "1", "mem": "512m"},
    }
    own = {"Authorization": f"Bearer {new_token(hub, name, PASSWORD)}"}
    made = httpx.post(f"{hub.api}/sessions", json=spec, headers=own, timeout=60)
    assert made.status_code == 201, made.text
    key = made.json()["id"]
    session = session_in(hub, "admin", key, "RUNNING", ended=("ERROR", "CANCELLED", "TERMINATED"))
    yield Account(hub, name, session)
    admin.delete(f"/sessions/{key}")
    session_in(hub, "admin", key, "TERMINATED")


def accepting_components(account: Account, client: httpx.Client) -> set[str]:
    """Return the components that accept the cookies of ``client``."""
    answers = {
        "hub": client.get("/hub/home"),
        "manager": client.get("/services/bai/api/v1/me"),
        "session": client.get(account.server + "api/contents?content=0"),
    }
    return {part for part, answer in answers.items() if answer.status_code == 200}


def client_with_copied_cookies(account: Account, client: httpx.Client) -> httpx.Client:
    """Return a client with copied cookies, which a sign-out of ``client`` does not delete."""
    cookies = [(c.name, c.value or "", c.path) for c in client.cookies.jar]
    copy = httpx.Client(base_url=account.hub.url, timeout=30)
    for name, value, path in cookies:
        copy.cookies.set(name, value, domain="127.0.0.1", path=path)
    return copy


@contextmanager
def open_websocket(account: Account, client: httpx.Client) -> Iterator[Callable[[], bool]]:
    """Open a websocket of the session; yield a function that returns whether it is still open."""
    url = account.hub.url.replace("http", "ws") + account.server + "api/events/subscribe"
    request = client.build_request("GET", account.server + "api/events/subscribe")
    header = {"Cookie": request.headers["Cookie"]}
    socket = websocket.create_connection(url, header=header, origin=account.hub.url, timeout=60)
    closed = threading.Event()

    def read() -> None:
        try:
            while socket.recv_data()[0] != websocket.ABNF.OPCODE_CLOSE:
                pass
        except (websocket.WebSocketException, OSError):
            pass
        closed.set()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        yield lambda: not closed.is_set()
    finally:
        socket.close()
        reading.join(10)
        socket.shutdown()


@contextmanager
def open_stream(account: Account, client: httpx.Client) -> Iterator[Callable[[], bool]]:
    """Open the manager's event stream; yield a function that returns whether it is still open."""
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
def assert_access_ends(account: Account, client: httpx.Client) -> Iterator[None]:
    """Assert that the access of ``client`` ends within 5 s after the ``with`` block.

    All components must then reject its cookies, and its websocket and event stream must be closed.
    """
    with ExitStack() as stack:
        copy = stack.enter_context(client_with_copied_cookies(account, client))
        # Use a separate client for the stream, which occupies its connection.
        streaming = stack.enter_context(client_with_copied_cookies(account, client))
        is_open = [
            stack.enter_context(open_websocket(account, copy)),
            stack.enter_context(open_stream(account, streaming)),
        ]
        # Fill the authorization caches: their entries must not remain valid beyond the limit.
        assert accepting_components(account, copy) == {"hub", "manager", "session"}
        yield
        deadline = time.monotonic() + LIMIT_SECONDS
        wait_until(
            lambda: not accepting_components(account, copy),
            LIMIT_SECONDS,
            "all components to reject the cookies",
        )
        wait_until(
            lambda: not any(each() for each in is_open),
            deadline - time.monotonic(),
            "the websocket and the stream to close",
        )


def is_accepted(account: Account, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{account.hub.api}/me", headers=headers, timeout=30)
    return answer.status_code == 200


def test_a_logout_invalidates_only_the_cookies_of_that_browser(account: Account) -> None:
    token = account.token()
    with account.browser() as leaving, account.browser() as staying:
        with assert_access_ends(account, leaving):
            leaving.get("/hub/logout")
        assert accepting_components(account, staying) == {"hub", "manager", "session"}
        assert is_accepted(account, token)


@pytest.mark.parametrize("is_logged_out", [True, False], ids=["after logout", "before logout"])
def test_logout_invalidates_a_pending_oauth_code(account: Account, is_logged_out: bool) -> None:
    with account.browser() as client:
        # Delete the manager's cookies, so that the Hub sends the browser a new OAuth code. Keep the
        # URL with the code.
        for cookie in [c for c in client.cookies.jar if c.path.startswith("/services/bai")]:
            client.cookies.jar.clear(cookie.domain, cookie.path, cookie.name)
        answer = client.get(f"/services/bai/sessions/{account.session['id']}")
        answer = client.get(answer.headers["Location"])
        callback = answer.headers["Location"]
        assert "code=" in callback
        with client_with_copied_cookies(account, client) as attacker:
            if is_logged_out:
                client.get("/hub/logout")
            attacker.get(callback)
            # Positive control: without the logout, the same callback is accepted.
            assert ("manager" in accepting_components(account, attacker)) is not is_logged_out
            if is_logged_out:
                wait_until(
                    lambda: not accepting_components(account, attacker),
                    LIMIT_SECONDS,
                    "the copied cookies to be rejected",
                )


def test_a_sign_in_with_a_forged_session_id_ends_with_the_logout(account: Account) -> None:
    with account.browser() as client, client_with_copied_cookies(account, client) as attacker:
        for cookie in list(attacker.cookies.jar):
            if cookie.name == "jupyterhub-session-id" or not cookie.path.startswith("/hub"):
                attacker.cookies.jar.clear(cookie.domain, cookie.path, cookie.name)
        attacker.cookies.set("jupyterhub-session-id", "chosen", domain="127.0.0.1", path="/")
        attacker.follow_redirects = True
        attacker.get(f"/services/bai/sessions/{account.session['id']}")
        assert "manager" in accepting_components(account, attacker)
        client.get("/hub/logout")
        attacker.follow_redirects = False
        wait_until(
            lambda: not accepting_components(account, attacker),
            LIMIT_SECONDS,
            "the copied cookies to be rejected",
        )


def test_a_password_change_ends_all_other_sign_ins(account: Account) -> None:
    token = account.token()
    with account.browser() as other, account.browser() as own:
        with assert_access_ends(account, other):
            answer = account.hub.post_form(
                own,
                "/hub/change-password",
                old_password=PASSWORD,
                new_password=NEW_PASSWORD,
                repeat_password=NEW_PASSWORD,
            )
            assert answer.status_code == 200, answer.text
        assert accepting_components(account, own) == {"hub", "manager", "session"}
        # API tokens remain valid, because this request did not revoke them.
        assert is_accepted(account, token)
        body = {"name": account.name, "old_password": NEW_PASSWORD, "new_password": PASSWORD}
        answer = httpx.post(
            f"{account.hub.api}/auth/password", json={**body, "revoke_tokens": True}, timeout=30
        )
        assert answer.status_code == 204, answer.text
        deadline = time.monotonic() + LIMIT_SECONDS
        wait_until(lambda: not is_accepted(account, token), LIMIT_SECONDS, "the token's rejection")
        remaining = deadline - time.monotonic()
        wait_until(
            lambda: not accepting_components(account, own), remaining, "the cookies' rejection"
        )
    session_in(account.hub, "admin", account.session["id"], "RUNNING")


def test_a_password_set_by_an_administrator_ends_all_access_except_sessions(
    account: Account, admin: httpx.Client
) -> None:
    token = account.token()
    with account.browser() as client, assert_access_ends(account, client):
        answer = admin.patch(f"/users/{account.name}", json={"password": NEW_PASSWORD})
        assert answer.status_code == 200, answer.text
    wait_until(lambda: not is_accepted(account, token), LIMIT_SECONDS, "the token to be rejected")
    with account.browser(NEW_PASSWORD) as client:
        # The token of the session is not revoked: the panel can still call the manager.
        assert client.get(account.server + "bai/api/session").status_code == 200


@pytest.mark.checklist("AUTH-15")
@pytest.mark.parametrize("action", ["sign-out", "deactivation", "address rule"])
def test_an_administrator_ends_the_access_of_a_user(
    account: Account, admin: httpx.Client, action: str
) -> None:
    token = account.token()
    with account.browser() as client, assert_access_ends(account, client):
        if action == "sign-out":
            assert admin.post(f"/users/{account.name}/sign-out").status_code == 202
        else:
            rule = {"allowed_client_ip": ["10.20.30.0/24"]}
            change = {"status": "inactive"} if action == "deactivation" else rule
            answer = admin.patch(f"/users/{account.name}", json=change)
            assert answer.status_code == 200, answer.text
    wait_until(lambda: not is_accepted(account, token), LIMIT_SECONDS, "the token to be rejected")
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{account.hub.url}/hub/api/user", headers=headers, timeout=30)
    assert answer.status_code in (401, 403)
    if action == "address rule":
        # The session continues, but the user may not sign in from this address.
        session_in(account.hub, "admin", account.session["id"], "RUNNING")
        with account.hub.client() as client:
            fields = {"username": account.name, "password": PASSWORD}
            answer = account.hub.post_form(client, "/hub/login", **fields)
        assert (answer.status_code, ENGLISH("sign_in.address") in answer.text) == (403, True)


def test_a_sign_in_above_the_limit_of_the_policy_ends_the_oldest(
    account: Account, admin: httpx.Client
) -> None:
    policy = f"two-{secrets.token_hex(3)}"
    answer = admin.post("/user-policies", json={"name": policy, "max_concurrent_logins": 2})
    assert answer.status_code == 201, answer.text
    assert admin.patch(f"/users/{account.name}", json={"resource_policy": policy}).is_success
    with account.browser() as first, account.browser() as second:
        with assert_access_ends(account, first), account.browser(confirms=True) as third:
            assert accepting_components(account, second) == accepting_components(account, third)
        assert accepting_components(account, second) == {"hub", "manager", "session"}
    assert admin.patch(f"/users/{account.name}", json={"resource_policy": "default"}).is_success
    assert admin.delete(f"/user-policies/{policy}").status_code == 204
