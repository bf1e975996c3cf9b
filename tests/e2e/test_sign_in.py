"""Sign-in on a real Hub: accepted accounts, messages of the pages, and access of each role."""

from __future__ import annotations

import html
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from bai_services.core.accounts.passwords import FAILURES_ALLOWED
from bai_services.i18n.catalogue import LANGUAGES, translator
from tests.hub import RunningHub, running_session, session_in
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

ENGLISH = translator("en")
PASSWORD = "Correct-horse-7"


@pytest.fixture(scope="module")
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def create_account(admin: httpx.Client) -> Callable[..., str]:
    """Return a function that creates an account and returns its user name.

    By default, the account has the password ``PASSWORD`` and belongs to the domain ``default``.
    """

    def make(**fields: Any) -> str:
        name = f"p-{uuid.uuid4().hex[:10]}"
        spec = {
            "username": name,
            "email": f"{name}@example.org",
            "password": PASSWORD,
            "domain": "default",
        }
        answer = admin.post("/users", json={**spec, **fields})
        assert answer.status_code == 201, answer.text
        return name

    return make


def sign_in(
    hub: RunningHub, name: str, password: str, **headers: str
) -> tuple[httpx.Response, bool]:
    """Submit the sign-in form; return the response, and whether the user is then signed in."""
    with hub.client() as client:
        client.headers.update(headers)
        answer = hub.post_form(client, "/hub/login", username=name, password=password)
        return answer, is_signed_in(client)


def text_of(answer: httpx.Response) -> str:
    return html.unescape(answer.text)


def is_signed_in(client: httpx.Client) -> bool:
    return client.get("/hub/home").status_code == 200


@pytest.mark.parametrize(
    "typed",
    [
        pytest.param("{name}", id="user name"),
        pytest.param("{name}@example.org", id="e-mail"),
        pytest.param("  {name} ", id="name between spaces"),
        pytest.param("{name}@EXAMPLE.org", id="e-mail in other case"),
    ],
)
def test_sign_in_accepts_name_and_e_mail(
    hub: RunningHub, create_account: Callable[..., str], typed: str
) -> None:
    name = create_account()
    with hub.sign_in(typed.format(name=name), PASSWORD) as browser:
        assert f">{name}<" in browser.get("/hub/home").text


def test_demo_accounts_sign_in(hub: RunningHub) -> None:
    for name in ("admin", "domain-admin", "user", "user2", "acme-user"):
        with hub.sign_in(name) as client:
            assert is_signed_in(client), name


def test_a_wrong_password_and_an_unknown_name_get_the_same_response(
    hub: RunningHub, create_account: Callable[..., str]
) -> None:
    pages = []
    for name in (create_account(), "p-nobody-ever", "a name/with odd\\ \x01characters"):
        answer, is_in = sign_in(hub, name, "not the password")
        assert (answer.status_code, is_in) == (403, False)
        assert ENGLISH("sign_in.refused") in text_of(answer)
        pages.append(answer.text)
    assert len({page.count("<input") for page in pages}) == 1


def test_the_typed_name_is_escaped_in_the_response(hub: RunningHub) -> None:
    answer, _ = sign_in(hub, '"><script>alert(1)</script>', "x")
    assert answer.status_code == 403
    assert "<script>alert(1)" not in answer.text


@pytest.mark.parametrize(
    "status, key",
    [("inactive", "sign_in.inactive"), ("before-verification", "sign_in.before_verification")],
)
def test_an_account_that_may_not_sign_in_gets_the_reason(
    hub: RunningHub, create_account: Callable[..., str], status: str, key: str
) -> None:
    name = create_account(status=status)
    answer, _ = sign_in(hub, name, PASSWORD)
    assert (answer.status_code, ENGLISH(key) in text_of(answer)) == (403, True)
    answer, _ = sign_in(hub, name, "not the password")
    # With a wrong password, the response does not reveal the status of the account.
    assert ENGLISH("sign_in.refused") in text_of(answer)


def test_a_client_address_that_is_not_allowed_is_rejected(
    hub: RunningHub, create_account: Callable[..., str]
) -> None:
    name = create_account(allowed_client_ip=["10.20.30.0/24"])
    answer, _ = sign_in(hub, name, PASSWORD, **{"X-Forwarded-For": "10.20.30.40"})
    assert answer.status_code == 403
    assert ENGLISH("sign_in.address") in text_of(answer)


@pytest.mark.checklist("AUTH-09")
@pytest.mark.parametrize("exists", [True, False], ids=["existing account", "unknown name"])
def test_repeated_failures_block_sign_in_and_show_the_waiting_time(
    hub: RunningHub, create_account: Callable[..., str], exists: bool
) -> None:
    name = create_account() if exists else f"p-{uuid.uuid4().hex[:10]}"
    with hub.client() as client:
        for _ in range(FAILURES_ALLOWED):
            answer = hub.post_form(client, "/hub/login", username=name, password="wrong")
            assert (answer.status_code, "Retry-After" in answer.headers) == (403, False)
        answer = hub.post_form(client, "/hub/login", username=name, password="wrong")
        assert answer.status_code == 403
        seconds = int(answer.headers["Retry-After"])
        assert 1140 < seconds <= 1200
        assert "Too many failed attempts. Try again in " in text_of(answer)
        # A sign-in with the correct password is also blocked.
        answer = hub.post_form(client, "/hub/login", username=name, password=PASSWORD)
        assert (answer.status_code, "Retry-After" in answer.headers) == (403, True)


def test_a_forced_password_change_is_required_before_sign_in(
    hub: RunningHub, create_account: Callable[..., str]
) -> None:
    name = create_account(need_password_change=True)
    new = "Another-horse-8"
    with hub.client() as client:
        answer = hub.post_form(client, "/hub/login", username=name, password=PASSWORD)
        assert answer.status_code == 200
        assert ENGLISH("password.must_change") in text_of(answer)
        assert not is_signed_in(client)
        fields = {"username": name, "old_password": PASSWORD, "new_password": new}
        answer = hub.post_form(client, "/hub/change-password", **fields, repeat_password="other")
        assert (answer.status_code, ENGLISH("password.differs") in text_of(answer)) == (400, True)
        answer = hub.post_form(client, "/hub/change-password", **fields, repeat_password=new)
        assert answer.status_code == 302, text_of(answer)
        assert is_signed_in(client)
    assert sign_in(hub, name, PASSWORD)[1] is False
    assert sign_in(hub, name, new)[1] is True


def test_a_user_changes_their_own_password(
    hub: RunningHub, create_account: Callable[..., str]
) -> None:
    name, other = create_account(), create_account()
    with hub.sign_in(name, PASSWORD) as client:
        assert f'value="{name}"' in client.get("/hub/change-password").text

        def change(old: str, new: str) -> httpx.Response:
            # The form names another user. This must not change the other user's password.
            return hub.post_form(
                client,
                "/hub/change-password",
                username=other,
                old_password=old,
                new_password=new,
                repeat_password=new,
            )

        answer = change(PASSWORD, "short")
        assert (answer.status_code, ENGLISH("password.rule_broken") in text_of(answer)) == (
            400,
            True,
        )
        answer = change("not it", "Another-horse-8")
        assert (answer.status_code, ENGLISH("password.wrong") in text_of(answer)) == (403, True)
        answer = change(PASSWORD, PASSWORD)
        assert (answer.status_code, ENGLISH("password.same") in text_of(answer)) == (400, True)
        answer = change(PASSWORD, "Another-horse-8")
        assert (answer.status_code, ENGLISH("password.done") in text_of(answer)) == (200, True)
    assert sign_in(hub, name, "Another-horse-8")[1] is True
    assert sign_in(hub, other, PASSWORD)[1] is True


@pytest.mark.checklist("AUTH-13")
@pytest.mark.parametrize(
    "weak, reason",
    [
        ("Short-1", "at least 8 characters"),
        ("12345678-", "a letter"),
        ("no-digit-here", "a digit"),
        ("NoSpecial123", "neither a letter nor a digit"),
    ],
)
def test_a_weak_password_is_rejected_by_the_api_and_the_page(
    hub: RunningHub, admin: httpx.Client, create_account: Callable[..., str], weak: str, reason: str
) -> None:
    name = create_account()
    new = {"username": f"{name}-2", "email": f"{name}-2@example.org", "domain": "default"}
    own = {"name": name, "old_password": PASSWORD, "new_password": weak}
    for answer in (
        admin.post("/users", json={**new, "password": weak}),
        admin.patch(f"/users/{name}", json={"password": weak}),
        admin.post("/auth/password", json=own),
    ):
        assert (answer.status_code, reason in answer.json()["message"]) == (400, True), answer.text
        assert answer.json()["details"]["field"] == "password"
    with hub.client() as client:
        fields = {"username": name, "old_password": PASSWORD, "new_password": weak}
        answer = hub.post_form(client, "/hub/change-password", **fields, repeat_password=weak)
        assert (answer.status_code, ENGLISH("password.rule_broken") in text_of(answer)) == (
            400,
            True,
        )
    assert sign_in(hub, name, PASSWORD)[1] is True


def test_a_form_without_xsrf_token_is_rejected(hub: RunningHub) -> None:
    with hub.client() as client:
        client.get("/hub/login")
        fields = {"username": "admin", "password": hub.password}
        answer = client.post("/hub/login", data=fields)
        assert answer.status_code == 403
        assert ENGLISH("common.form_expired") in text_of(answer)
        fields = {"username": "admin", "old_password": hub.password, "new_password": "x"}
        assert client.post("/hub/change-password", data=fields).status_code == 403


def test_the_password_page_requires_a_sign_in(hub: RunningHub) -> None:
    with hub.client() as client:
        answer = client.get("/hub/change-password")
        assert (answer.status_code, "/hub/login" in answer.headers["Location"]) == (302, True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_are_translated_and_the_chosen_language_is_stored(
    hub: RunningHub, language: str
) -> None:
    translate = translator(language)
    with hub.client() as client:
        page = text_of(client.get("/hub/login", headers={"Accept-Language": f"fr, {language}"}))
        assert f'lang="{language}"' in page
        assert translate("sign_in.name") in page
        # The chosen language is stored and takes precedence over the language of the browser.
        client.get(f"/hub/login?lang={language}")
        answer = hub.post_form(client, "/hub/login", username="nobody", password="x")
        assert translate("sign_in.refused") in text_of(answer)


def test_a_domain_admin_can_read_but_not_change_users_of_the_domain(hub: RunningHub) -> None:
    for name in ("user", "user2", "acme-user", "admin"):
        assert sign_in(hub, name, hub.password)[1] is True
    with hub.sign_in("domain-admin") as browser:
        assert browser.get("/hub/admin").status_code == 200
    with hub.rest("domain-admin") as rest:
        headers = {"Authorization": rest.headers["Authorization"]}
    with httpx.Client(base_url=f"{hub.url}/hub/api", headers=headers, timeout=30) as api:
        users = {user["name"]: user for user in api.get("/users").json()}
        assert {"domain-admin", "user", "user2"} <= users.keys()
        assert all("d-default" in user["groups"] for user in users.values())
        assert "acme-user" not in users
        groups = {group["name"] for group in api.get("/groups").json()}
        assert groups == {"d-default"}
        assert api.get("/users/acme-user").status_code == 404
        # Only the owner can start a server. The response does not reveal whether the user exists.
        assert api.post("/users/acme-user/servers/x").status_code == 403
        assert api.delete("/users/acme-user/servers/x").status_code == 404
        for answer in (
            api.patch("/users/user", json={"name": "renamed"}),
            api.delete("/users/user2"),
            api.post("/users/made-up"),
            api.patch("/users/domain-admin", json={"admin": True}),
            api.post("/groups/d-acme/users", json={"users": ["user"]}),
        ):
            assert answer.status_code in (403, 404), answer.text
        assert api.get("/users/user").status_code == 200


def test_a_domain_admin_stops_only_sessions_of_the_domain(hub: RunningHub) -> None:
    """A domain admin stops sessions through the manager. The Hub denies access to the servers."""
    own, foreign = running_session(hub, "user2"), running_session(hub, "acme-user")
    with hub.rest("domain-admin") as rest:
        headers = {"Authorization": rest.headers["Authorization"]}
        with httpx.Client(base_url=f"{hub.url}/hub/api", headers=headers, timeout=60) as api:
            assert not any(user.get("servers") for user in api.get("/users").json())
            for session in (own, foreign):
                path = f"/users/{session['hub_user']}/servers/{session['hub_server']}"
                assert api.delete(path).status_code in (403, 404)
        assert rest.delete(f"/sessions/{foreign['id']}").status_code == 404
        assert rest.delete(f"/sessions/{own['id']}").status_code == 202
    session_in(hub, "user2", own["id"], "TERMINATED")
    session_in(hub, "acme-user", foreign["id"], "RUNNING")
    with hub.rest("acme-user") as rest:
        assert rest.delete(f"/sessions/{foreign['id']}").status_code == 202
    session_in(hub, "acme-user", foreign["id"], "TERMINATED")


def test_a_user_cannot_see_other_users(hub: RunningHub) -> None:
    with hub.sign_in("user") as browser:
        assert browser.get("/hub/admin").status_code == 403
    with hub.rest("user") as rest:
        headers = {"Authorization": rest.headers["Authorization"]}
        answer = httpx.get(f"{hub.url}/hub/api/users/user2", headers=headers, timeout=30)
        assert answer.status_code in (403, 404)


def test_deactivation_ends_tokens_and_sign_ins(
    hub: RunningHub, admin: httpx.Client, create_account: Callable[..., str]
) -> None:
    name = create_account()
    answer = httpx.post(f"{hub.api}/auth/token", json={"name": name, "password": PASSWORD})
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    with hub.sign_in(name, PASSWORD) as browser:
        assert httpx.get(f"{hub.api}/me", headers=headers).status_code == 200
        assert is_signed_in(browser)
        assert admin.patch(f"/users/{name}", json={"status": "inactive"}).status_code == 200
        assert httpx.get(f"{hub.api}/me", headers=headers).status_code == 401
        wait_until(lambda: not is_signed_in(browser), 20, "the end of the browser sign-in")
    hub_api = f"{hub.url}/hub/api/user"
    # The browser's sign-in and the token are revoked one after the other.
    wait_until(
        lambda: httpx.get(hub_api, headers=headers).status_code in (401, 403),
        20,
        "the end of the token",
    )


def test_a_new_role_takes_effect_in_the_hub_at_the_next_session_start(
    hub: RunningHub, admin: httpx.Client, create_account: Callable[..., str]
) -> None:
    name = create_account()
    with hub.sign_in(name, PASSWORD) as browser:
        assert browser.get("/hub/admin").status_code == 403
        answer = admin.patch(f"/users/{name}", json={"role": "admin"})
        assert answer.status_code == 200, answer.text
        # A start reloads the account, even if the start fails.
        page = browser.get("/hub/spawn")
        assert page.status_code == 200
        hub.post_form(browser, f"/hub/spawn/{name}", project="no-such-project")
        assert browser.get("/hub/admin").status_code == 200


def test_the_sign_in_page_reports_an_unavailable_manager(hub: RunningHub) -> None:
    # Suspend the manager, because a killed manager would be restarted before the sign-in.
    with hub.sign_in("user") as browser, hub.suspended("manager"):
        answer, _ = sign_in(hub, "user", hub.password)
        assert answer.status_code == 503
        assert ENGLISH("sign_in.unavailable") in text_of(answer)
        assert ENGLISH("sign_in.refused") not in text_of(answer)
        # Existing sign-ins survive the outage.
        assert is_signed_in(browser)
    wait_until(hub.is_up, 90, "the manager to respond again")
    assert sign_in(hub, "user", hub.password)[1] is True
