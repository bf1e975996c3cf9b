"""Sign-ins during which another sign-in or a change of the password happens."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bai_services.i18n.catalogue import translator
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

PASSWORD, NEW_PASSWORD = "Correct-horse-7", "Another-horse-8"
ENGLISH = translator("en")
# Sign-ins pause after the check of the password (``verified``), and after a new user is stored
# (``stored``), while a file with that name exists; they report the pause in another file.
PAUSING_AUTHENTICATOR = """
import asyncio, pathlib
from bai_auth.authenticator import BaiAuthenticator

FOLDER = pathlib.Path({folder!r})

class Pausing(BaiAuthenticator):
    async def authenticate(self, handler, data):
        model = await super().authenticate(handler, data)
        await self.pause("verified")
        return model

    async def add_user(self, user):
        super().add_user(user)
        await self.pause("stored")

    async def pause(self, name):
        if (FOLDER / name).exists():
            (FOLDER / f"{{name}}-reached").touch()
        while (FOLDER / name).exists():
            await asyncio.sleep(0.02)

c.JupyterHub.authenticator_class = Pausing
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pauses")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[RunningHub]:
    config = folder / "config.py"
    config.write_text(PAUSING_AUTHENTICATOR.format(folder=str(folder)))
    running = RunningHub(
        tmp_path_factory.mktemp("hub") / "home", environment={"BAI_CONFIG": str(config)}
    )
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


def new_account(admin: httpx.Client, **fields: str) -> str:
    name = f"p-{uuid.uuid4().hex[:10]}"
    spec = {"username": name, "email": f"{name}@example.org", "domain": "default"}
    answer = admin.post("/users", json={**spec, "password": PASSWORD, **fields})
    assert answer.status_code == 201, answer.text
    return name


@contextmanager
def paused_sign_in(
    hub: RunningHub, folder: Path, name: str, at: str
) -> Iterator[tuple[httpx.Client, list[httpx.Response]]]:
    """Sign in; run the block while the sign-in is paused. Yield its client and its responses."""
    (folder / at).touch()
    responses: list[httpx.Response] = []
    with hub.client() as client:

        def sign_in() -> None:
            fields = {"username": name, "password": PASSWORD}
            responses.append(hub.post_form(client, "/hub/login", **fields))

        thread = threading.Thread(target=sign_in)
        thread.start()
        try:
            wait_until((folder / f"{at}-reached").exists, 20, "the pause of the sign-in")
            yield client, responses
        finally:
            (folder / at).unlink(missing_ok=True)
            thread.join(30)
            (folder / f"{at}-reached").unlink(missing_ok=True)


def test_sign_in_with_a_password_that_is_reset_meanwhile_is_rejected(
    hub: RunningHub, admin: httpx.Client, folder: Path
) -> None:
    name = new_account(admin)
    with paused_sign_in(hub, folder, name, "verified") as (client, responses):
        answer = admin.patch(f"/users/{name}", json={"password": NEW_PASSWORD})
        assert answer.status_code == 200, answer.text
        (folder / "verified").unlink()
        wait_until(lambda: responses, 30, "the response to the sign-in")
        assert responses[0].status_code == 403
        assert ENGLISH("sign_in.refused") in responses[0].text
        assert client.get("/hub/home").status_code == 302
    with hub.sign_in(name, NEW_PASSWORD) as browser:
        assert browser.get("/hub/home").status_code == 200


def test_of_two_simultaneous_sign_ins_the_one_that_ends_later_must_be_confirmed(
    hub: RunningHub, admin: httpx.Client, folder: Path
) -> None:
    policy = f"one-{uuid.uuid4().hex[:6]}"
    body = {"name": policy, "max_concurrent_logins": 1}
    assert admin.post("/user-policies", json=body).status_code == 201
    name = new_account(admin, resource_policy=policy)
    with (
        paused_sign_in(hub, folder, name, "stored") as (_, responses),
        # The Hub has the user already, so this sign-in overtakes the other one.
        hub.sign_in(name, PASSWORD) as browser,
    ):
        (folder / "stored").unlink()
        wait_until(lambda: responses, 30, "the response to the other sign-in")
        assert responses[0].status_code == 409
        assert ENGLISH("sign_in.limit_title") in responses[0].text
        assert browser.get("/hub/home").status_code == 200
