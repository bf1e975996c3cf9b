"""Changes of an account take effect for a signed-in user without a new sign-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

PASSWORD = "Correct-horse-7"
# Groups and roles are refreshed at the first request after 1 s instead of after 5 minutes.
CONFIG = "c = get_config()\nc.Authenticator.auth_refresh_age = 1\n"


@pytest.fixture
def quick_hub(own_hub: Callable[..., RunningHub], tmp_path: Path) -> Iterator[RunningHub]:
    config = tmp_path / "quick.py"
    config.write_text(CONFIG)
    yield own_hub(environment={"BAI_CONFIG": str(config)}).start()


def change(rest: httpx.Client, method: str, path: str, **body: Any) -> Any:
    answer = rest.request(method, path, json=body or None)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def test_changes_of_groups_and_roles_reach_a_signed_in_user(quick_hub: RunningHub) -> None:
    hub = quick_hub
    admin = hub.rest("admin")
    account = {"username": "ada", "email": "ada@example.org", "password": PASSWORD}
    change(admin, "POST", "/users", **account, domain="default")
    change(admin, "POST", "/projects", name="moon", domain="default")
    token = change(hub.client(), "POST", f"{hub.api}/auth/token", name="ada", password=PASSWORD)
    headers = {"Authorization": f"Bearer {token['token']}"}

    def wait_for_user_model(**expected: object) -> None:
        """Wait until the Hub's model of the user has the expected groups and roles."""

        def is_known() -> bool:
            model = httpx.get(f"{hub.url}/hub/api/user", headers=headers, timeout=30).json()
            return all(
                sorted(model[name]) == value if isinstance(value, list) else model[name] is value
                for name, value in expected.items()
            )

        wait_until(is_known, 60, f"the Hub to know {expected}")

    with hub.sign_in("ada", PASSWORD) as browser:
        wait_for_user_model(admin=False, groups=["d-default"], roles=["user"])
        assert browser.get("/hub/admin").status_code == 403

        change(admin, "PUT", "/projects/default%2Fmoon/members/ada")
        wait_for_user_model(groups=["d-default", "p-default-moon"])
        change(admin, "DELETE", "/projects/default%2Fmoon/members/ada")
        wait_for_user_model(groups=["d-default"])

        change(admin, "PATCH", "/users/ada", role="admin")
        wait_for_user_model(admin=False, roles=["bai-domain-admin-default", "user"])
        assert browser.get("/hub/admin").status_code == 200

        change(admin, "PATCH", "/users/ada", role="superadmin")
        wait_for_user_model(admin=False, roles=["bai-superadmin", "user"])

        change(admin, "PATCH", "/users/ada", role="user")
        wait_for_user_model(admin=False, groups=["d-default"], roles=["user"])
        assert browser.get("/hub/admin").status_code == 403
        assert browser.get("/hub/home").status_code == 200
