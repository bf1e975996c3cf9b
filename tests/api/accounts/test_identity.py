"""Authentication of requests: service secrets, signatures, client addresses, rate limits."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

import httpx
import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from bai_services.api.accounts.sign_in import SignIn
from bai_services.client import Client, Keypair
from bai_services.core.accounts import signature
from bai_services.core.errors import Forbidden, NotSignedIn, RateLimited
from tests.testbed.manager import SUPERADMIN, Api, MovableClock

SKEW = timedelta(minutes=15)


async def send_signed(
    api: Api,
    *,
    path: str = "me",
    content_type: str = "",
    minutes_off: float = 0,
    signed_path: str | None = None,
    signed_content_type: str | None = None,
    access_key: str | None = None,
    date: str | None = None,
) -> httpx.Response:
    """Send a signed GET request and return the response.

    The date of the signature is ``minutes_off`` minutes after the current time (negative: before
    the current time). ``signed_path`` and ``signed_content_type`` replace ``path`` and
    ``content_type`` in the signature only. ``access_key`` and ``date`` replace the user's access
    key and the date in the headers only. None: no replacement.
    """
    keys = api.world.keys["user"]
    when = api.world.clock() + timedelta(minutes=minutes_off)
    async with httpx.AsyncClient(base_url=api.url + "/api/v1/") as http:
        headers = {"Content-Type": content_type} if content_type else {}
        request = http.build_request("GET", path, headers=headers)
        sign = signature.sign(
            keys.secret_key,
            method="GET",
            path=signed_path or request.url.raw_path.decode(),
            host=request.headers["Host"],
            date=when,
            content_type=content_type if signed_content_type is None else signed_content_type,
        )
        request.headers["Date"] = date if date is not None else when.isoformat()
        request.headers["Authorization"] = signature.authorization(
            access_key or keys.access_key, sign
        )
        return await http.send(request)


@pytest.mark.parametrize(
    "minutes, status",
    [
        pytest.param(0, 200, id="current"),
        pytest.param(-14.9, 200, id="under 15 minutes old: accepted"),
        pytest.param(14.9, 200, id="under 15 minutes ahead: accepted"),
        pytest.param(-15.1, 401, id="over 15 minutes old: rejected"),
        pytest.param(15.1, 401, id="over 15 minutes ahead: rejected"),
    ],
)
async def test_signature_is_valid_for_15_minutes(api: Api, minutes: float, status: int) -> None:
    answer = await send_signed(api, minutes_off=minutes)
    assert answer.status_code == status
    if status == 401:
        assert "set the clock" in answer.json()["message"]


async def test_wrong_signature_and_unknown_key_give_the_same_error(api: Api) -> None:
    wrong = await send_signed(api, signed_path="/services/bai/api/v1/users")
    unknown = await send_signed(api, access_key="AKNOSUCHKEY000000000")
    assert (wrong.status_code, wrong.json()) == (unknown.status_code, unknown.json())
    assert wrong.json()["error"] == "not-signed-in"


@pytest.mark.parametrize("date", ["", "yesterday", "2026-01-01T00:00:00"])
async def test_invalid_date_or_date_without_time_zone_is_rejected(api: Api, date: str) -> None:
    answer = await send_signed(api, date=date)
    assert answer.status_code == 401
    assert "Date header" in answer.json()["message"]


async def test_signature_covers_query_and_content_type(api: Api) -> None:
    admin = await api.client("admin")
    page = await admin.get("/users", limit=1, username__contains="us er&x=1")
    assert page["total"] == 0
    await admin.patch("/users/user", {"full_name": "U"})
    path, content_type = "keypairs?limit=1", "application/json"
    signed_path = f"/services/bai/api/v1/{path}"
    sent = partial(send_signed, api, signed_path=signed_path, signed_content_type=content_type)
    assert (await sent(path=path, content_type=content_type)).status_code == 200
    for changed in (
        {"path": "keypairs?limit=2", "content_type": content_type},
        {"path": "keypairs", "content_type": content_type},
        {"path": path, "content_type": "text/plain"},
        {"path": path, "content_type": ""},
    ):
        answer = await sent(**changed)
        assert (answer.status_code, answer.json()["error"]) == (401, "not-signed-in"), changed


async def signed_patch(api: Api, path: str, body: bytes, sent: bytes, **kept: bool) -> int:
    """Sign a request with the digest of ``body``, but send the body ``sent``; return the status.

    The method is PUT for a path with ``/content``, and PATCH otherwise. With ``has_header=False``,
    the request lacks the header Content-Digest.
    """
    keys = api.world.keys["admin"]
    async with httpx.AsyncClient(base_url=api.url + "/api/v1/") as http:
        method = "PUT" if "/content" in path else "PATCH"
        request = http.build_request(method, path, content=sent)
        digest = signature.content_digest(body)
        when = api.world.clock()
        sign = signature.sign(
            keys.secret_key,
            method=method,
            path=request.url.raw_path.decode(),
            host=request.headers["Host"],
            date=when,
            content_type="",
            content_digest=digest,
        )
        request.headers["Date"] = when.isoformat()
        request.headers["Authorization"] = signature.authorization(keys.access_key, sign)
        if kept.get("has_header", True):
            request.headers["Content-Digest"] = digest
        return (await http.send(request)).status_code


async def test_signed_digest_covers_the_body(api: Api) -> None:
    body, other = b'{"full_name": "A"}', b'{"full_name": "B"}'
    assert await signed_patch(api, "users/user", body, body) == 200
    assert await signed_patch(api, "users/user", body, other) == 401
    # Without the digest header, the signature is invalid.
    assert await signed_patch(api, "users/user", body, other, has_header=False) == 401
    admin = await api.client("admin")
    assert (await admin.get("/users/user"))["full_name"] == "A"


async def test_digest_of_a_streamed_body_is_rejected(api: Api) -> None:
    path = "vfolders/no-such-folder/content?path=a"
    assert await signed_patch(api, path, b"x", b"x") == 400


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Bearer", id="no token"),
        pytest.param("Bearer wrong", id="wrong token"),
        pytest.param("Basic dXNlcjpwYXNz", id="unknown scheme"),
        pytest.param("BackendAI nonsense", id="malformed signature"),
        pytest.param("Bearer hub-secre", id="prefix of a service secret"),
    ],
)
async def test_invalid_credential_is_rejected(api: Api, header: str) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{api.url}/api/v1/me", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["error"]) == (401, "not-signed-in")


async def test_service_secret_permits_only_the_operations_of_the_service(api: Api) -> None:
    assert (await api.hub.get("/auth/accounts/user"))["username"] == "user"
    for client in (api.hub, api.agent):
        with pytest.raises(Forbidden):
            await client.get("/me")
        with pytest.raises(Forbidden):
            await client.get("/users")
    with pytest.raises(Forbidden):
        await api.agent.get("/auth/accounts/user")
    with pytest.raises(NotSignedIn):
        await api.nobody.get("/me")


async def test_empty_token_does_not_match_an_unset_secret(api: Api) -> None:
    object.__setattr__(api.world.manager.settings, "agent_token", "")
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{api.url}/api/v1/agents", headers={"Authorization": "Bearer"})
    assert answer.status_code == 401


async def test_inactive_keypair_or_account_is_rejected_at_once(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    access_key = api.world.keys["user"].access_key
    await user.get("/me")
    await admin.patch(f"/keypairs/{access_key}", {"is_active": False})
    with pytest.raises(NotSignedIn, match="is not active"):
        await user.get("/me")
    await admin.patch(f"/keypairs/{access_key}", {"is_active": True})
    await user.get("/me")
    await admin.patch("/users/user", {"status": "inactive"})
    with pytest.raises(NotSignedIn, match="this account is not active"):
        await user.get("/me")


async def test_account_may_be_restricted_to_networks(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await admin.patch("/users/user", {"allowed_client_ip": ["10.0.0.0/8"]})
    with pytest.raises(NotSignedIn, match=r"may not be used from 127\.0\.0\.1"):
        await user.get("/me")
    await admin.patch("/users/user", {"allowed_client_ip": ["127.0.0.1"]})
    await user.get("/me")


async def test_rate_limit_counts_only_valid_requests_of_a_keypair(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    access_key = api.world.keys["user"].access_key
    await admin.patch(f"/keypairs/{access_key}", {"rate_limit": 3})
    for _ in range(3):
        await user.get("/me")
    with pytest.raises(RateLimited, match="used up its 3 requests in 15 minutes") as caught:
        await user.get("/me")
    assert 0 < caught.value.details["retry_after_seconds"] <= 910
    await admin.get("/me")
    # Requests with a wrong signature do not count. Otherwise anyone who knows the access key could
    # use up the limit of the key's owner. The new limit is 6, of which 3 requests are used.
    await admin.patch(f"/keypairs/{access_key}", {"rate_limit": 6})
    for _ in range(5):
        async with Client(api.url, Keypair(access_key, "x" * 40)) as thief:
            with pytest.raises(NotSignedIn):
                await thief.get("/me")
    for _ in range(3):
        await user.get("/me")
    with pytest.raises(RateLimited):
        await user.get("/me")


async def test_rate_limit_window_slides(api: Api, clock: MovableClock) -> None:
    access_key = api.world.keys["user"].access_key
    await api.world.manager.accounts.keypairs.update(SUPERADMIN, access_key, {"rate_limit": 2})
    answers = [await send_signed(api) for _ in range(3)]
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 910
    statuses = [answer.status_code for answer in answers]
    clock.advance(minutes=15, seconds=11)
    statuses += [(await send_signed(api)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429, 200, 200, 429]


async def test_last_use_of_a_keypair_is_stored(api: Api, clock: MovableClock) -> None:
    user = await api.client("user")
    await user.get("/me")
    (keypair,) = (await user.get("/keypairs"))["items"]
    assert keypair["last_used"] == clock().isoformat()


async def test_secrets_are_not_in_logs_lists_or_reprs(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = api.world.keys["user"]
    admin = await api.client("admin")
    new = await admin.post("/keypairs", {"user": "user"})
    await (await api.client("user")).get("/me")
    seen = [
        await admin.get("/keypairs"),
        await admin.get(f"/keypairs/{new['access_key']}"),
        await admin.get("/users"),
        await admin.get("/audit-log", limit=500),
        repr(api.world.manager.settings),
        repr(keys),
        caplog.text,
    ]
    settings = api.world.manager.settings
    secrets = [keys.secret_key, new["secret_key"], settings.hub_token, settings.agent_token]
    for secret in [*secrets, settings.key.decode()]:
        assert not any(secret in str(text) for text in seen)
    assert not any("secret_key" in str(text) or "password_hash" in str(text) for text in seen[:4])


@pytest.mark.parametrize(
    "peer, forwarded, client",
    [
        pytest.param("10.0.0.9", "", "10.0.0.9", id="direct request"),
        pytest.param("127.0.0.1", "10.0.0.9", "10.0.0.9", id="trusted proxy reports the client"),
        pytest.param(
            "127.0.0.1",
            "1.2.3.4, 10.0.0.9",
            "10.0.0.9",
            id="client sends a forged header through the proxy",
        ),
        pytest.param(
            "10.0.0.9", "1.2.3.4", "10.0.0.9", id="header of an untrusted peer is ignored"
        ),
    ],
)
async def test_forwarded_address_is_accepted_only_from_trusted_proxies(
    api: Api, peer: str, forwarded: str, client: str
) -> None:
    headers = HTTPHeaders({"Host": "hub"} | ({"X-Forwarded-For": forwarded} if forwarded else {}))
    start = RequestStartLine("GET", "/", "HTTP/1.1")
    request = HTTPServerRequest(start_line=start, headers=headers)
    request.remote_ip = peer
    assert SignIn(api.world.manager).client_ip(request) == client
