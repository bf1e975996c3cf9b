"""`bai admin`, `bai whoami` and exit codes, with a real manager."""

from __future__ import annotations

import pytest

from .conftest import Bai


async def test_whoami_shows_account_and_projects(bai: Bai, hub_url: str) -> None:
    done = await bai("whoami", "--json", by="user")
    assert (done.code, done.stderr) == (0, "")
    me = done.document
    assert (me["url"], me["username"], me["role"]) == (hub_url, "user", "user")
    assert [project["name"] for project in me["projects"]] == ["default"]
    shown = await bai("whoami", by="user")
    assert "user@example.com" in shown.stdout


async def test_users_change_their_own_full_name(bai: Bai) -> None:
    done = await bai("full-name", "Ann Kim", by="user")
    assert (done.code, done.stdout) == (0, "your full name is now Ann Kim\n")
    assert (await bai("whoami", "--json", by="user")).document["full_name"] == "Ann Kim"
    for name in ("A" * 65, "An\u200bn"):
        assert (await bai("full-name", name, by="user")).code == 2
    done = await bai("full-name", "", "--json", by="user")
    assert done.document == {"full_name": ""}


async def test_create_list_update_and_delete_a_domain(bai: Bai) -> None:
    made = await bai(
        "admin", "domain", "create", "wing", "--description", "the [red] tenant",
        "--total-resource-slots", "cpu=4", "--total-resource-slots", "cuda.shares=0",
        "--max-concurrent-sessions", 3, "--json",
    )  # fmt: skip
    assert (made.code, made.stderr) == (0, "")
    assert made.document["total_resource_slots"] == {"cpu": "4", "cuda.shares": "0"}
    listed = await bai("admin", "domain", "list", "--json", "--sort", "-name", "--limit", 1)
    assert [item["name"] for item in listed.document["items"]] == ["wing"]
    assert listed.document["total"] == 3
    table = await bai("admin", "domain", "list", "--filter", "name__contains=win")
    assert table.stdout.splitlines()[1].split()[:4] == ["wing", "the", "[red]", "tenant"]
    changed = await bai(
        "admin", "domain", "update", "wing", "--no-active", "--max-concurrent-sessions", "none",
        "--total-resource-slots", "none", "--json",
    )  # fmt: skip
    thing = (await bai("admin", "domain", "show", "wing", "--json")).document
    assert changed.document == thing
    assert (thing["is_active"], thing["max_concurrent_sessions"]) == (False, None)
    assert (thing["total_resource_slots"], thing["description"]) == ({}, "the [red] tenant")
    gone = await bai("admin", "domain", "delete", "wing", "--json")
    assert gone.document == {"deleted": "wing"}
    assert (await bai("admin", "domain", "show", "wing")).code == 4


async def test_create_a_user_with_password_and_project(bai: Bai) -> None:
    made = await bai(
        "admin", "user", "create", "Bob", "--email", "Bob@Example.org", "--password-stdin",
        "--json", by="domain-admin", stdin="a Password-1 \n",
    )  # fmt: skip
    assert (made.code, made.stderr) == (0, "")
    assert "Password-1" not in made.stdout
    await bai("admin", "project", "create", "vision", by="domain-admin")
    added = await bai(
        "admin", "project", "members", "add", "vision", "bob", "user", by="domain-admin"
    )
    assert (added.code, added.stdout) == (0, "added bob, user to vision\n")
    listed = await bai("admin", "project", "members", "list", "vision", "--json", by="domain-admin")
    assert [item["username"] for item in listed.document["items"]] == ["bob", "user"]
    await bai("admin", "project", "members", "rm", "vision", "user", by="domain-admin")
    listed = await bai("admin", "project", "members", "list", "vision", "--json", by="domain-admin")
    assert [item["username"] for item in listed.document["items"]] == ["bob"]
    assert (await bai("admin", "user", "sign-out", "bob", by="domain-admin")).code == 0


async def test_secret_of_a_new_keypair_is_printed_once(bai: Bai) -> None:
    made = (await bai("admin", "keypair", "create", "--user", "user", "--json")).document
    secret = made["secret_key"]
    shown = await bai("admin", "keypair", "show", made["access_key"])
    assert (shown.code, secret in shown.stdout) == (0, False)
    own = {"BAI_ACCESS_KEY": made["access_key"], "BAI_SECRET_KEY": secret}
    assert (await bai("whoami", **own)).code == 0
    renewed = await bai("admin", "keypair", "update", made["access_key"], "--new-secret", "--json")
    assert renewed.document["secret_key"] not in (None, secret)
    assert (await bai("whoami", **own)).code == 5


@pytest.mark.parametrize(
    ("arguments", "by", "code", "error"),
    [
        (["admin", "domain", "create", "Bad Name!"], "admin", 2, "invalid-request"),
        (["admin", "policy", "update", "default"], "admin", 2, "invalid-request"),
        (["admin", "domain", "list", "--filter", "colour=red"], "admin", 2, "invalid-request"),
        (["admin", "domain", "show", "a/../b ?#%"], "admin", 4, "not-found"),
        (["admin", "domain", "show", ".."], "admin", 4, "not-found"),
        (["admin", "domain", "create", "wing"], "user", 5, "forbidden"),
        (["admin", "domain", "create", "default"], "admin", 1, "already-exists"),
        (["admin", "domain", "delete", "default"], "admin", 1, "in-use"),
    ],
)
async def test_error_has_the_expected_exit_code(
    bai: Bai, arguments: list[str], by: str, code: int, error: str
) -> None:
    as_json = await bai(*arguments, "--json", by=by)
    assert (as_json.code, as_json.stdout, as_json.error["error"]) == (code, "", error)
    plain = await bai(*arguments, by=by)
    assert (plain.code, plain.stdout) == (code, "")
    assert f"error: {as_json.error['message']}" in plain.stderr


async def test_invalid_keypair_has_exit_code_5(bai: Bai) -> None:
    done = await bai("whoami", "--json", BAI_SECRET_KEY="x" * 40)
    assert (done.code, done.stdout, done.error["error"]) == (5, "", "not-signed-in")


async def test_unreachable_manager_has_exit_code_6(bai: Bai) -> None:
    done = await bai("whoami", "--json", BAI_URL="http://127.0.0.1:1")
    assert (done.code, done.stdout, done.error["error"]) == (6, "", "unavailable")


async def test_audit_counters_reports_matching_counters(bai: Bai) -> None:
    done = await bai("admin", "audit-counters")
    assert (done.code, done.stdout) == (0, "all counters match the allocations\n")
    assert (await bai("admin", "audit-counters", by="user")).code != 0


async def test_mail_settings_are_shown_and_checked(bai: Bai) -> None:
    shown = await bai("admin", "mail", "status", "--json")
    assert (shown.document["is_configured"], shown.document["pending"]) == (False, 0)
    failed = await bai("admin", "mail", "test", "ann@example.com", "--json")
    assert "BAI_MAIL_HOST" in failed.error["message"]
    assert (await bai("admin", "mail", "test", "x@example.com", by="user")).code == 5


async def test_invitations_are_created_listed_and_deleted(bai: Bai, hub_url: str) -> None:
    group = ("admin", "invitation")
    made = await bai(*group, "create", "--uses", 3, "--description", "course", "--json")
    invitation = made.document
    assert invitation["link"] == f"{hub_url}/hub/sign-up#{invitation['token']}"
    assert (invitation["domain"], invitation["max_uses"]) == ("default", 3)
    listed = await bai(*group, "list")
    assert "course" in listed.stdout and invitation["token"] not in listed.stdout
    assert (await bai(*group, "create", by="user")).code == 5
    done = await bai(*group, "delete", invitation["id"])
    assert (done.code, done.stdout) == (0, "the invitation is deleted\n")
    assert (await bai(*group, "delete", invitation["id"])).code == 4
    assert "does not await an approval" in (await bai("admin", "user", "approve", "user")).stderr


async def test_limits_of_policies_without_a_limit_have_a_text(bai: Bai) -> None:
    made = await bai("admin", "user-policy", "create", "open", "--max-app-share-seconds", 0)
    shown = (await bai("admin", "user-policy", "show", "open")).stdout
    fields = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert made.stdout == shown
    for name in ("max_vfolder_count", "max_quota_scope_bytes", "max_app_share_seconds"):
        assert fields[name] == "no limit"
    assert fields["max_concurrent_sessions"] == "no limit"
    listed = await bai("admin", "user-policy", "list", "--filter", "name=open")
    assert "no limit" in listed.stdout
    keypairs = await bai(
        "admin", "keypair-policy", "create", "open", "--max-lifetime-extension-seconds", 0
    )
    fields = dict(line.split(maxsplit=1) for line in keypairs.stdout.splitlines())
    assert fields["idle_timeout_seconds"] == "no limit"
    assert fields["max_lifetime_extension_seconds"] == "0"
    document = (await bai("admin", "user-policy", "show", "open", "--json")).document
    assert (document["max_vfolder_count"], document["max_concurrent_sessions"]) == (0, None)
