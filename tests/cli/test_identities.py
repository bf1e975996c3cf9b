"""Identities of users at OpenID providers on the command line."""

from __future__ import annotations

from bai_services.core.accounts.external_identities import ExternalUser
from tests.testbed.manager import HUB, Api

from .conftest import Bai


async def test_an_administrator_lists_and_unlinks_identities(bai: Bai, api: Api) -> None:
    user = ExternalUser(provider="uni", issuer="https://sso.example.org", subject="0001")
    service = api.world.manager.accounts.external_sign_ins
    (identity,) = (await service.link(HUB, "user", user, "10.1.2.3")).items
    shown = await bai("admin", "user", "identities", "user", "--json", by="domain-admin")
    assert [one["id"] for one in shown.document["items"]] == [identity.id]
    command = ("admin", "user", "unlink-identity", "user", identity.id, "--json")
    refused = await bai(*command, by="user")
    assert refused.error["error"] == "forbidden"
    done = await bai(*command, by="domain-admin")
    assert done.document == {"username": "user", "unlinked": identity.id}
    shown = await bai("admin", "user", "identities", "user")
    assert "no identity is linked to user" in shown.stdout + shown.stderr
