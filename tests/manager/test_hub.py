"""The manager with a real Hub: REST client, tokens, browser sign-in and sign-out."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from click.testing import CliRunner

from bai_services.cli import profile
from bai_services.cli.main import main
from bai_services.client import Client, Token
from bai_services.core.errors import (
    Conflict,
    Forbidden,
    NotFound,
    NotSignedIn,
    SignInRefused,
    Unavailable,
)
from bai_services.manager.hub.client import Hub, HubBusy
from tests.testbed.hub import PASSWORD, HubAndManager, running_hub, signed_in_browser
from tests.testbed.wait import wait_until, wait_until_async

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubAndManager]:
    with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
async def hub(running: HubAndManager) -> AsyncIterator[Hub]:
    client = Hub(running.hub_url, running.token)
    yield client
    await client.close()


async def signed_in_client(running: HubAndManager, username: str) -> Client:
    async with Client(running.manager_url) as anyone:
        response = await anyone.post("/auth/token", {"name": username, "password": PASSWORD})
    assert response["username"] == username
    return Client(running.manager_url, Token(response["token"]))


async def test_servers_are_created_started_and_stopped(hub: Hub) -> None:
    for _ in range(2):
        await hub.ensure_user("worker")
        await hub.create_server("worker", "first", "My First!", {"bai_session_id": "1"})
    model = await hub.server_model("worker", "first")
    assert model is not None and model["display_name"] == "My First!"
    assert model["user_options"] == {"bai_session_id": "1"} and not model["ready"]
    await hub.start_server("worker", "first")
    await wait_until_async(lambda: _is_ready(hub, "first"), 20, "the server to become ready")
    with pytest.raises(Conflict, match="already running"):
        await hub.start_server("worker", "first")
    active = [(user, server["name"]) async for user, server in hub.active_servers()]
    assert ("worker", "first") in active
    assert await hub.stop_server("worker", "first", remove=False)
    model = await hub.server_model("worker", "first")
    assert model is not None and model["stopped"]
    assert await hub.stop_server("worker", "first")
    assert await hub.server_model("worker", "first") is None
    assert await hub.stop_server("worker", "first")
    assert await hub.server_model("nobody", "first") is None
    with pytest.raises(NotFound):
        await hub.create_server("nobody", "first", "", {})


async def _is_ready(hub: Hub, server: str) -> bool:
    model = await hub.server_model("worker", server)
    return bool(model and model["ready"])


async def test_busy_hub_returns_the_delay_before_a_retry(hub: Hub) -> None:
    await hub.ensure_user("worker")
    names = ["a", "b", "c", "d"]
    for name in names:
        await hub.create_server("worker", name, name, {})
    for name in names[:3]:
        await hub.start_server("worker", name)
    with pytest.raises(HubBusy) as caught:
        await hub.start_server("worker", "d")
    assert 1 <= caught.value.retry_after <= 10
    for name in names:
        await hub.stop_server("worker", name)


async def test_unreachable_hub_or_rejected_token_raises_unavailable(running: HubAndManager) -> None:
    for hub in (Hub("http://127.0.0.1:1/hub/api", "x"), Hub("", ""), Hub(running.hub_url, "wrong")):
        with pytest.raises(Unavailable):
            await hub.create_token("user", "note", 60)
        await hub.close()


async def test_password_is_exchanged_for_a_token_with_the_rights_of_its_user(
    running: HubAndManager,
) -> None:
    async with await signed_in_client(running, "user2") as client:
        assert (await client.get("/me"))["username"] == "user2"
        with pytest.raises(Forbidden):
            await client.get("/audit-log")


async def test_token_can_revoke_itself(running: HubAndManager, hub: Hub) -> None:
    async with (
        await signed_in_client(running, "user2") as mine,
        await signed_in_client(running, "user2") as other,
    ):
        assert (await mine.get("/me"))["username"] == "user2"  # the manager caches the token
        await mine.delete("/auth/token")
        for _ in range(2):
            with pytest.raises(NotSignedIn):
                await mine.get("/me")
        with pytest.raises(NotSignedIn):
            await mine.delete("/auth/token")
        assert (await other.get("/me"))["username"] == "user2"
        async with await signed_in_client(running, "admin") as admin:
            page = await admin.get("/audit-log", action="sign-out.token", actor="user2")
            assert page["total"] == 1


async def test_bai_logout_revokes_the_token(
    running: HubAndManager, hub: Hub, tmp_path: Path
) -> None:
    async with Client(running.manager_url) as anyone:
        made = await anyone.post("/auth/token", {"name": "user2", "password": PASSWORD})
    location = running.manager_url.removesuffix("/services/bai")
    environ = {"BAI_CONFIG_DIR": str(tmp_path)}
    profile.save(profile.Profile(location, Token(made["token"]), "user2"), environ)
    assert await hub.user_of_token(made["token"]) is not None
    done = await asyncio.to_thread(CliRunner().invoke, main, ["logout", "--json"], env=environ)
    assert json.loads(done.stdout) == {"signed_out": True, "token_withdrawn": True}
    assert await hub.user_of_token(made["token"]) is None
    assert profile.load_saved(environ) is None


async def test_tokens_that_are_invalid_or_have_no_account_are_rejected(
    running: HubAndManager, hub: Hub
) -> None:
    await hub.ensure_user("stranger")
    await hub.ensure_user("user")
    limited = {"note": "of a session", "scopes": ["read:users:name!user=user"]}
    model = await hub.call("POST", "/users/user/tokens", json=limited)
    stranger = (await hub.create_token("stranger", "no account", 60)).value
    for token, text in (
        (model["token"], "invalid, expired or revoked"),
        (stranger, "no account here"),
        (running.token, "invalid, expired or revoked"),
        ("made-up", "invalid, expired or revoked"),
    ):
        async with Client(running.manager_url, Token(token)) as client:
            with pytest.raises(NotSignedIn, match=text):
                await client.get("/me")


async def test_session_token_has_few_of_its_owners_permissions(
    running: HubAndManager, hub: Hub
) -> None:
    """A program in a superadmin's session can read the session's token, but the token grants only a
    few of the superadmin's rights.
    """
    async with await signed_in_client(running, "admin") as admin:
        mine = await admin.post("/sessions", {"name": "of-admin", "project": "default"})
        async with await signed_in_client(running, "user") as user:
            theirs = await user.post("/sessions", {"name": "of-user", "project": "default"})
        folder = await admin.post("/vfolders", {"name": "of-admin"})
        scopes = ["custom:bai:session!server=admin/of-admin", "read:users:name!user=admin"]
        spec = {"note": "of a session", "scopes": scopes}
        token = (await hub.call("POST", "/users/admin/tokens", json=spec))["token"]
        async with Client(running.manager_url, Token(token)) as session:
            seen = await session.get("/sessions")
            assert [item["name"] for item in seen["items"]] == ["of-admin"]
            (listed,) = (await session.get("/vfolders", name="of-admin"))["items"]
            # The fields describe what the owner may do, because the panel in JupyterLab shows them.
            assert (listed["permission"], listed["is_managed"]) == ("wd", True)
            with pytest.raises(NotFound):
                await session.get(f"/sessions/{theirs['id']}")
            for method, path in (
                ("GET", "/me"),
                ("GET", "/users"),
                ("GET", "/keypairs"),
                ("GET", f"/vfolders/{folder['id']}/files"),
                ("PUT", f"/vfolders/{folder['id']}/content?path=x"),
                ("POST", f"/vfolders/{folder['id']}/uploads"),
                ("GET", "/events"),
                ("POST", "/sessions"),
            ):
                with pytest.raises(Forbidden, match="a session token"):
                    await session.call(method, path)
            renamed = await session.patch(f"/sessions/{mine['id']}", {"name": "renamed"})
            assert renamed["name"] == "renamed"
            await session.delete(f"/sessions/{mine['id']}")
        await admin.delete(f"/sessions/{theirs['id']}")
        await admin.delete(f"/vfolders/{folder['id']}")


async def test_deactivated_user_is_signed_out_of_manager_and_hub(
    running: HubAndManager, hub: Hub
) -> None:
    admin = await signed_in_client(running, "admin")
    spec = {"username": "leaver", "email": "leaver@example.com", "password": "long enough 1"}
    async with admin:
        await admin.post("/users", spec)
        await hub.ensure_user("leaver")
        await hub.create_server("leaver", "work", "work", {})
        await hub.start_server("leaver", "work")
        token = (await hub.create_token("leaver", "test", 600)).value
        async with (
            signed_in_browser(running, "leaver") as browser,
            Client(running.manager_url, Token(token)) as leaver,
        ):
            assert (await leaver.get("/me"))["username"] == "leaver"
            assert (await browser.get("/services/bai/api/v1/me")).status_code == 401
            await admin.patch("/users/leaver", {"status": "inactive"})
            with pytest.raises(NotSignedIn, match="not active"):
                await leaver.get("/me")
            await wait_until_async(
                lambda: _is_gone(hub, token), 30, "the Hub to delete the token and the servers"
            )
            home = await browser.get("/hub/home", follow_redirects=False)
            assert home.status_code == 302 and "/hub/login" in home.headers["Location"]


async def _is_gone(hub: Hub, token: str) -> bool:
    return not await hub.servers_of("leaver") and await hub.user_of_token(token) is None


async def test_sign_out_revokes_tokens_and_stops_servers(running: HubAndManager, hub: Hub) -> None:
    token = (await hub_user_token(hub, "acme-user")).value
    await hub.create_server("acme-user", "work", "work", {})
    await hub.start_server("acme-user", "work")
    async with Client(running.manager_url, Token(token)) as client:
        await client.post("/users/acme-user/sign-out")
    await wait_until_async(lambda: _is_revoked(hub, token), 30, "the token to be revoked")
    await wait_until_async(lambda: _is_removed(hub), 30, "the server to be removed")
    async with await signed_in_client(running, "acme-user") as again:
        assert (await again.get("/me"))["username"] == "acme-user"


async def test_requests_from_an_address_that_is_no_longer_allowed_are_rejected_with_the_reason(
    running: HubAndManager,
) -> None:
    api = "/services/bai/api/v1"
    async with (
        await signed_in_client(running, "admin") as admin,
        signed_in_browser(running, "user2") as browser,
    ):

        async def has_lost_its_sign_in() -> bool:
            me = await browser.get(f"{api}/me")
            assert (me.status_code, me.json()["details"]) == (401, {"reason": "address"})
            # JupyterHub's client deletes this cookie when the Hub rejects the cookie's token.
            return "service-bai" not in {cookie.name for cookie in browser.cookies.jar}

        # Opening this page of the manager signs the browser in.
        await browser.get("/services/bai/cli-login", params=_sign_in_request("x" * 43))
        assert (await browser.get(f"{api}/me")).status_code == 200
        await admin.patch("/users/user2", {"allowed_client_ip": ["10.20.30.0/24"]})
        try:
            await wait_until_async(has_lost_its_sign_in, 30, "the sign-in to end")
            assert await has_lost_its_sign_in()
        finally:
            await admin.patch("/users/user2", {"allowed_client_ip": None})
        # The account may sign in again, so the response contains no reason.
        me = await browser.get(f"{api}/me")
        assert (me.status_code, me.json()["details"]) == (401, {})


async def hub_user_token(hub: Hub, username: str) -> Any:
    await hub.ensure_user(username)
    return await hub.create_token(username, "test", 600)


async def _is_revoked(hub: Hub, token: str) -> bool:
    return await hub.user_of_token(token) is None


async def _is_removed(hub: Hub) -> bool:
    return await hub.server_model("acme-user", "work") is None


async def test_changes_by_a_browser_need_the_xsrf_token_of_the_manager(
    running: HubAndManager,
) -> None:
    async with signed_in_browser(running, "user") as browser:
        api = "/services/bai/api/v1"
        # Opening this page signs the browser in and sets the manager's XSRF token.
        await browser.get("/services/bai/cli-login", params=_sign_in_request("x" * 43))
        me = await browser.get(f"{api}/me")
        assert (me.status_code, me.json()["username"]) == (200, "user")
        change = {"full_name": "Changed"}
        without_xsrf = await browser.patch(f"{api}/users/user", json=change)
        assert (without_xsrf.status_code, without_xsrf.json()["error"]) == (403, "forbidden")
        cookies = {c.path: c.value for c in browser.cookies.jar if c.name == "_xsrf"}
        headers = {"X-XSRFToken": str(cookies["/services/bai/"])}
        wrong = await browser.patch(
            f"{api}/users/user", json=change, headers={"X-XSRFToken": str(cookies["/hub/"])}
        )
        assert wrong.status_code == 403
        right = await browser.patch(f"{api}/users/user", json=change, headers=headers)
        assert (right.status_code, right.json()["full_name"]) == (200, "Changed")


def _sign_in_request(challenge: str) -> dict[str, str]:
    return {"port": "54321", "challenge": challenge, "state": "some-state-1"}


async def test_cli_signs_in_through_the_browser(running: HubAndManager) -> None:
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    request = _sign_in_request(base64.urlsafe_b64encode(digest).rstrip(b"=").decode())
    async with signed_in_browser(running, "user") as browser:
        page = await browser.get("/services/bai/cli-login", params=request)
        assert page.status_code == 200 and "act as user" in page.text
        xsrf = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
        assert xsrf is not None
        rejected = await browser.post("/services/bai/cli-login", data=request)
        assert rejected.status_code in (401, 403)
        response = await browser.post(
            "/services/bai/cli-login",
            data={**request, "_xsrf": xsrf[1]},
            follow_redirects=False,
        )
    assert response.status_code == 303
    location = urlsplit(response.headers["Location"])
    arguments = parse_qs(location.query)
    assert (location.netloc, arguments["state"]) == ("127.0.0.1:54321", ["some-state-1"])
    async with Client(running.manager_url) as anyone:
        body = {"code": arguments["code"][0], "verifier": verifier}
        token = (await anyone.post("/auth/code/redeem", body))["token"]
        with pytest.raises(SignInRefused):
            await anyone.post("/auth/code/redeem", body)
    async with Client(running.manager_url, Token(token)) as client:
        assert (await client.get("/me"))["username"] == "user"
        # A request with a token cannot create another token; only a browser may ask for a code.
        with pytest.raises(NotSignedIn):
            await client.post("/auth/code", {"challenge": request["challenge"]})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"port": "80"}, id="privileged port"),
        pytest.param({"port": "5000@evil.example"}, id="host in the port"),
        pytest.param({"challenge": "short"}, id="challenge too short"),
        pytest.param({"state": "a&b=c d e f g"}, id="invalid characters in the state"),
    ],
)
async def test_invalid_sign_in_request_of_the_cli_is_rejected(
    running: HubAndManager, change: dict[str, str]
) -> None:
    async with signed_in_browser(running, "user") as browser:
        request = {**_sign_in_request("x" * 43), **change}
        page = await browser.get("/services/bai/cli-login", params=request)
        assert page.status_code == 400


async def test_code_is_only_sent_to_a_signed_in_browser(running: HubAndManager) -> None:
    """A request without a sign-in is rejected, whether its parameters are valid or not."""
    async with httpx.AsyncClient() as browser:
        for request in (_sign_in_request("x" * 43), _sign_in_request("short")):
            response = await browser.post(f"{running.manager_url}/cli-login", data=request)
            assert (response.status_code, "sign in first" in response.text) == (401, True)


async def test_browser_that_is_not_signed_in_is_redirected_to_the_hub(
    running: HubAndManager,
) -> None:
    async with httpx.AsyncClient() as browser:
        url = f"{running.manager_url}/cli-login"
        response = await browser.get(url, params=_sign_in_request("x" * 43))
        assert response.status_code == 302
        assert response.headers["Location"].startswith("/hub/api/oauth2/authorize?")


async def test_hub_restarts_a_killed_manager(running: HubAndManager) -> None:
    before = running.manager_pid()
    client = await signed_in_client(running, "user")
    os.kill(before, signal.SIGKILL)
    await asyncio.to_thread(
        wait_until,
        lambda: (running.health() or {}).get("status") == "ok" and running.manager_pid() != before,
        60,
        "the Hub to restart the manager",
    )
    async with client:
        assert (await client.get("/me"))["username"] == "user"


def test_manager_exits_with_its_hub(tmp_path: Path) -> None:
    with running_hub(tmp_path) as hub:
        pid = hub.manager_pid()
        hub.process.kill()
        hub.process.wait()
        wait_until(lambda: not _runs(pid), 15, "the manager to exit")
        assert hub.health() is None


def _runs(pid: int) -> bool:
    try:
        return b"bai_services.app" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
