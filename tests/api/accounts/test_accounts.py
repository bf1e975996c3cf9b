"""CRUD and validation of domains, projects, users, keypairs and policies over REST."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.accounts.records import NewKeypair
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInRefused,
)
from tests.testbed.manager import Api

HOSTS = {"local": ["create-vfolder", "mount-in-session"]}


@pytest.fixture
async def admin(api: Api) -> Client:
    return await api.client("admin")


@pytest.fixture
async def domain_admin(api: Api) -> Client:
    return await api.client("domain-admin")


async def expect_error(kind: type[BaiError], call: Any, match: str | None = None) -> BaiError:
    with pytest.raises(kind, match=match) as caught:
        await call
    assert type(caught.value) is kind
    return caught.value


async def names(client: Client, path: str, field: str = "name") -> list[str]:
    return [item[field] async for item in client.items(path)]


async def test_domain_is_created_changed_and_deleted(api: Api, admin: Client) -> None:
    spec = {
        "name": "lab",
        "description": "The lab",
        "total_resource_slots": {"cpu": "8", "cuda.shares": "0"},
        "max_concurrent_sessions": 4,
        "allowed_vfolder_hosts": HOSTS,
    }
    made = await admin.post("/domains", spec)
    assert made == {**spec, "is_active": True, "created_at": api.world.clock().isoformat()}
    (project,) = (await admin.get("/projects", domain="lab"))["items"]
    assert (project["name"], project["is_active"]) == ("default", True)
    changed = await admin.patch("/domains/lab", {"max_concurrent_sessions": None})
    assert changed == {**made, "max_concurrent_sessions": None}
    assert await admin.get("/domains/lab") == changed
    await admin.delete("/domains/lab")
    await expect_error(NotFound, admin.get("/domains/lab"))
    assert (await admin.get("/projects", domain="lab"))["total"] == 0


async def test_project_gets_members_and_is_changed_and_deleted(
    admin: Client, domain_admin: Client, api: Api
) -> None:
    made = await domain_admin.post("/projects", {"name": "vision", "default_image": "python"})
    assert (made["domain"], made["type"], made["resource_policy"]) == (
        "default",
        "general",
        "default",
    )
    await domain_admin.put("/projects/vision/members/user2")
    await domain_admin.put("/projects/vision/members/user2")
    members = await domain_admin.get("/projects/vision/members")
    assert [m["username"] for m in members["items"]] == ["user2"]
    assert "vision" in await names(await api.client("user2"), "/projects")
    await domain_admin.delete("/projects/vision/members/user2")
    await expect_error(NotFound, domain_admin.delete("/projects/vision/members/user2"))
    foreign = admin.put("/projects/vision/members/acme-user")
    await expect_error(InvalidRequest, foreign, "own domain")
    await domain_admin.patch(f"/projects/{made['id']}", {"name": "vision-2", "is_active": False})
    await domain_admin.delete("/projects/vision-2")
    await expect_error(NotFound, domain_admin.get(f"/projects/{made['id']}"))


async def test_project_name_refers_to_the_callers_domain(admin: Client, api: Api) -> None:
    assert (await admin.get("/projects/default"))["domain"] == "default"
    assert (await admin.get("/projects/acme%2Fdefault"))["domain"] == "acme"
    acme = await api.client("acme-user")
    assert (await acme.get("/projects/default"))["domain"] == "acme"
    await admin.post("/projects", {"name": "twin", "domain": "acme"})
    await admin.post("/domains", {"name": "third"})
    await admin.post("/projects", {"name": "twin", "domain": "third"})
    await expect_error(Conflict, admin.get("/projects/twin"), "acme/twin, third/twin")


@pytest.mark.checklist("USR-03", "USR-09")
async def test_user_is_created_signs_in_and_is_deleted(api: Api, domain_admin: Client) -> None:
    spec = {
        "username": "Grace",
        "email": "Grace@Example.org",
        "password": "a b c 1 2 3",
        "full_name": "Grace H.",
        "projects": ["default", "research"],
        "allowed_client_ip": ["127.0.0.0/8"],
    }
    made = await domain_admin.post("/users", spec)
    keypair = made.pop("keypair")
    assert made["username"] == "grace" and made["email"] == "grace@example.org"
    assert made["role"] == "user" and made["domain"] == "default"
    assert [p["name"] for p in made["projects"]] == ["default", "research"]
    assert made["main_access_key"] == keypair["access_key"]
    assert len(keypair["access_key"]) == 20 and len(keypair["secret_key"]) == 40
    for key in ("grace", "grace@example.org", made["id"]):
        assert await domain_admin.get(f"/users/{key}") == made
    account = await api.hub.post(
        "/auth/verify", {"name": "grace", "password": "a b c 1 2 3", "client_ip": "127.0.0.1"}
    )
    assert account["hub_groups"] == ["d-default", "p-default-default", "p-default-research"]
    await domain_admin.delete("/users/grace")
    with pytest.raises(SignInRefused):
        await api.hub.post(
            "/auth/verify", {"name": "grace", "password": "a b c 1 2 3", "client_ip": "127.0.0.1"}
        )
    deleted = await domain_admin.get("/users/grace")
    assert deleted["status"] == "deleted"
    keypairs = (await domain_admin.get("/keypairs", user="grace"))["items"]
    assert [k["is_active"] for k in keypairs] == [False]
    again = {"username": "grace", "email": "other@example.org"}
    await expect_error(AlreadyExists, domain_admin.post("/users", again), "taken by a deleted user")


async def test_main_keypair_of_a_new_user_authenticates(api: Api, admin: Client) -> None:
    spec = {"username": "new", "email": "new@example.org", "domain": "acme"}
    made = await admin.post("/users", spec)
    api.world.keys["new"] = NewKeypair(**made["keypair"])
    me = await (await api.client("new")).get("/me")
    assert me == {
        "id": made["id"],
        "username": "new",
        "email": "new@example.org",
        "full_name": "",
        "role": "user",
        "domain": "acme",
        "projects": [],
        "keypairs": [made["main_access_key"]],
        "need_password_change": False,
        "limits": {"sessions": "30"},
        "usage": {},
    }


async def test_me_shows_the_lowest_limit_of_all_scopes(api: Api, admin: Client) -> None:
    await admin.patch("/domains/default", {"total_resource_slots": {"cpu": 8, "mem": "16g"}})
    await admin.patch("/user-policies/default", {"total_resource_slots": {"cpu": "2.5"}})
    await admin.patch(
        "/keypair-policies/default",
        {"total_resource_slots": {"cuda.shares": 0.5}, "max_concurrent_sessions": 3},
    )
    limits = (await (await api.client("user")).get("/me"))["limits"]
    assert limits == {"cpu": "2.5", "cuda.shares": "0.5", "mem": "16g", "sessions": "3"}


async def test_policy_may_limit_some_slots_and_leave_others_unlimited(
    api: Api, admin: Client
) -> None:
    spec = {"cpu": "unlimited", "mem": -1, "cuda.shares": 0}
    changes = {"default_for_unspecified": "LIMITED", "total_resource_slots": spec}
    made = await admin.patch("/keypair-policies/default", changes)
    shown = {"cpu": "unlimited", "cuda.shares": "0", "mem": "unlimited"}
    assert made["total_resource_slots"] == shown
    limits = (await (await api.client("user")).get("/me"))["limits"]
    assert limits == {"cuda.shares": "0", "sessions": "30"}
    wrong = {"resource_slots": {"cpu": "unlimited", "mem": "1g"}, "name": "x"}
    await expect_error(InvalidRequest, admin.post("/presets", wrong), "not an amount")


async def test_keypair_gets_a_new_secret_and_is_deleted(api: Api, admin: Client) -> None:
    made = await admin.post("/keypairs", {"user": "user", "rate_limit": 50})
    assert (made["user"], made["is_main"], made["rate_limit"]) == ("user", False, 50)
    key = made["access_key"]
    changed = await admin.patch(f"/keypairs/{key}", {"new_secret": True, "is_main": True})
    assert changed["is_main"] and changed["secret_key"] != made["secret_key"]
    await expect_error(InUse, admin.delete(f"/keypairs/{key}"), "as their main keypair")
    first = api.world.keys["user"].access_key
    await admin.patch(f"/keypairs/{first}", {"is_main": True})
    await admin.delete(f"/keypairs/{key}")
    await expect_error(NotFound, admin.get(f"/keypairs/{key}"))


async def test_user_may_renew_the_secret_of_a_keypair_but_not_create_keypairs(api: Api) -> None:
    user = await api.client("user")
    key = api.world.keys["user"].access_key
    renewed = await user.patch(f"/keypairs/{key}", {"new_secret": True})
    await expect_error(NotSignedIn, user.get("/me"))
    api.world.keys["user"] = NewKeypair(key, renewed["secret_key"])
    user = await api.client("user")
    await expect_error(Forbidden, user.post("/keypairs", {}))
    await expect_error(Forbidden, user.patch(f"/keypairs/{key}", {"rate_limit": 99}))
    await expect_error(Forbidden, user.delete(f"/keypairs/{key}"))
    other = api.world.keys["user2"].access_key
    await expect_error(NotFound, user.patch(f"/keypairs/{other}", {"new_secret": True}))
    # The rejected requests had no effect.
    unchanged = await user.get(f"/keypairs/{key}")
    assert unchanged["rate_limit"] != 99 and await names(user, "/keypairs", "access_key") == [key]
    assert (await (await api.client("user2")).get("/me"))["username"] == "user2"


@pytest.mark.parametrize(
    "kind, change",
    [
        ("keypair", {"total_resource_slots": {"cpu": "4", "cuda.shares": "0"}, "max_priority": 50}),
        ("user", {"max_vfolder_count": 3, "total_resource_slots": {"mem": "4g"}}),
        ("project", {"max_quota_scope_bytes": 2**40}),
    ],
)
async def test_policy_is_created_changed_and_deleted(
    admin: Client, kind: str, change: dict[str, Any]
) -> None:
    path = f"/{kind}-policies"
    made = await admin.post(path, {"name": "strict"})
    changed = await admin.patch(f"{path}/strict", change)
    assert changed == {**made, **change}
    assert await names(admin, path) == ["default", "strict"]
    await expect_error(AlreadyExists, admin.post(path, {"name": "strict"}))
    await expect_error(InUse, admin.delete(f"{path}/default"), "in use by")
    await admin.delete(f"{path}/strict")
    await expect_error(NotFound, admin.get(f"{path}/strict"))


async def test_deletion_of_an_object_in_use_is_rejected_with_the_number_of_references(
    admin: Client,
) -> None:
    error = await expect_error(InUse, admin.delete("/domains/default"))
    assert error.details["used_by"] == {"users": 5, "projects": 1}
    error = await expect_error(InUse, admin.delete("/keypair-policies/default"))
    assert error.details["used_by"] == {"keypairs": 6}


@pytest.mark.parametrize(
    "path, body, match",
    [
        pytest.param(
            "/domains", {"name": "A b"}, "cannot be the name of a domain", id="invalid domain name"
        ),
        pytest.param("/domains", {}, "name: Field required", id="missing domain name"),
        pytest.param(
            "/domains", {"name": "x", "color": 1}, "color: Extra inputs", id="unknown field"
        ),
        pytest.param(
            "/domains",
            {"name": "x", "total_resource_slots": {"cuda.shares": "0.255"}},
            "is not a multiple of",
            id="slot limit is not a multiple of the step",
        ),
        pytest.param(
            "/domains",
            {"name": "x", "total_resource_slots": {"gpu": "1"}},
            "not a resource slot",
            id="unknown slot",
        ),
        pytest.param(
            "/domains",
            {"name": "x", "allowed_vfolder_hosts": {"local": ["fly"]}},
            "fly is not a permission",
            id="unknown host permission",
        ),
        pytest.param(
            "/domains", {"name": "x", "description": "\0"}, "description", id="NUL in a text"
        ),
        pytest.param(
            "/domains",
            {"name": "x", "description": "x" * 501},
            "description",
            id="description too long",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "nobody"},
            "e-mail address",
            id="invalid e-mail address",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "password": "secret"},
            "at least 8 characters, must contain a digit",
            id="weak password",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "role": "king"},
            "'king' is not a valid role",
            id="unknown role",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "status": "deleted"},
            "'deleted' is not a",
            id="created with status deleted",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "allowed_client_ip": ["ten"]},
            "is not a network",
            id="invalid client network",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "domain": "acme", "projects": ["research"]},
            "not in domain acme",
            id="user and project in different domains",
        ),
        pytest.param(
            "/keypairs", {"user": "user", "rate_limit": 0}, "rate_limit", id="rate limit of zero"
        ),
        pytest.param(
            "/keypair-policies",
            {"name": "x", "default_for_unspecified": "OPEN"},
            "default_for_unspecified",
            id="invalid default_for_unspecified",
        ),
        *(
            pytest.param(
                "/keypair-policies",
                {"name": "x", "total_resource_slots": {"cpu": amount}},
                match,
                id=f"invalid slot quantity {str(amount)[:12]}",
            )
            for amount, match in (
                ("1e400000", "not an amount"),
                ("1e999999999", "not an amount"),
                (10**4000, "at most 40 ASCII"),
                (True, "valid integer"),
            )
        ),
    ],
)
async def test_invalid_field_is_rejected_with_a_reason(
    admin: Client, path: str, body: Any, match: str
) -> None:
    await expect_error(InvalidRequest, admin.post(path, body), match)


@pytest.mark.parametrize("field", ["total_resource_slots", "max_pending_slots"])
async def test_invalid_limit_of_a_policy_names_its_field(admin: Client, field: str) -> None:
    request = admin.patch("/keypair-policies/default", {field: {"cpu": "lots"}})
    error = await expect_error(InvalidRequest, request, "cpu=lots is not an amount")
    assert error.details == {"slot": "cpu", "field": field}


async def test_rejected_password_is_not_in_the_message(admin: Client) -> None:
    body = {"username": "x", "email": "x@example.org", "password": "weakpassword"}
    error = await expect_error(InvalidRequest, admin.post("/users", body))
    assert "weakpassword" not in f"{error.message} {error.details}"


async def test_new_password_is_also_checked_against_the_stored_e_mail_address(
    admin: Client,
) -> None:
    await admin.post("/users", {"username": "x", "email": "x@example.org"})
    change = {"password": "7-x@example.org"}
    await expect_error(InvalidRequest, admin.patch("/users/x", change), "the e-mail address")


@pytest.mark.parametrize(
    "path, body",
    [
        pytest.param("/projects", {"name": "x", "domain": "nowhere"}, id="domain"),
        pytest.param("/projects", {"name": "x", "resource_policy": "nope"}, id="project policy"),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "projects": ["nowhere"]},
            id="project",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "resource_policy": "nope"},
            id="user policy",
        ),
        pytest.param(
            "/users",
            {"username": "x", "email": "x@example.org", "keypair_policy": "nope"},
            id="keypair policy",
        ),
        pytest.param("/keypairs", {"user": "nobody"}, id="user"),
    ],
)
async def test_reference_to_missing_resource_is_not_found(
    admin: Client, path: str, body: Any
) -> None:
    before = (await admin.get(path))["total"]
    await expect_error(NotFound, admin.post(path, body))
    assert (await admin.get(path))["total"] == before


async def test_invalid_keys_in_paths_are_not_found(admin: Client) -> None:
    for path in ("/users/%00", "/users/..%2f..", "/projects/%F0%9F%98%80", "/domains/%27--"):
        error = await expect_error(NotFound, admin.get(path))
        assert "internal" not in error.message


async def test_names_and_email_addresses_are_unique(admin: Client) -> None:
    before = [(await admin.get(path))["total"] for path in ("/users", "/domains", "/projects")]
    taken = {"username": "user", "email": "fresh@example.org"}
    await expect_error(AlreadyExists, admin.post("/users", taken), "user name user is taken")
    taken = {"username": "fresh", "email": "USER@example.com"}
    await expect_error(
        AlreadyExists, admin.post("/users", taken), "email user@example.com is taken"
    )
    await expect_error(AlreadyExists, admin.post("/domains", {"name": "acme"}))
    await expect_error(AlreadyExists, admin.post("/projects", {"name": "research"}))
    await expect_error(
        InvalidRequest, admin.patch("/users/user", {"username": "u"}), "cannot be changed"
    )
    after = [(await admin.get(path))["total"] for path in ("/users", "/domains", "/projects")]
    assert after == before


async def test_last_superadmin_cannot_be_removed(admin: Client, api: Api) -> None:
    for change in ({"role": "user"}, {"status": "inactive"}):
        await expect_error(Conflict, admin.patch("/users/admin", change), "last active superadmin")
    await expect_error(Conflict, admin.delete("/users/admin"), "your own account")
    await admin.patch("/users/user", {"role": "superadmin"})
    await admin.patch("/users/admin", {"role": "user"})
    other = await api.client("user")
    await expect_error(Conflict, other.patch("/users/user", {"role": "user"}))
    roles = {item["username"]: item["role"] async for item in other.items("/users")}
    assert (roles["user"], roles["admin"]) == ("superadmin", "user")


async def test_user_who_changes_domain_leaves_projects(admin: Client) -> None:
    moved = await admin.patch("/users/user", {"domain": "acme"})
    assert (moved["domain"], moved["projects"]) == ("acme", [])


async def test_projects_of_a_user_are_replaced(admin: Client, domain_admin: Client) -> None:
    await admin.post("/projects", {"name": "vision"})
    changed = await domain_admin.patch("/users/user", {"projects": ["vision"]})
    assert [project["name"] for project in changed["projects"]] == ["vision"]
    kept = await domain_admin.patch("/users/user", {"full_name": "Ann"})
    assert kept["projects"] == changed["projects"]
    moved = await admin.patch("/users/user", {"domain": "acme", "projects": ["default"]})
    projects = [project["id"] for project in moved["projects"]]
    assert projects == [(await admin.get("/projects/acme%2Fdefault"))["id"]]
    await expect_error(
        InvalidRequest, admin.patch("/users/user", {"projects": ["default/vision"]}), "not in"
    )
    await expect_error(NotFound, admin.patch("/users/user", {"projects": ["nowhere"]}))


async def test_list_is_paged_sorted_and_filtered(admin: Client) -> None:
    page = await admin.get("/users", limit=2, offset=1, sort="-username")
    assert [u["username"] for u in page["items"]] == ["user", "monitor"]
    assert (page["total"], page["limit"], page["offset"]) == (6, 2, 1)
    page = await admin.get("/users", role="user", domain__ne="acme", sort="username")
    assert [u["username"] for u in page["items"]] == ["user", "user2"]
    page = await admin.get("/users", email__contains="ACME")
    assert [u["username"] for u in page["items"]] == ["acme-user"]
    await expect_error(InvalidRequest, admin.get("/users", password_hash="x"), "no field")


async def test_denied_change_is_in_the_audit_log(
    api: Api, admin: Client, domain_admin: Client
) -> None:
    user = await api.client("user")
    await expect_error(Forbidden, user.post("/domains", {"name": "lab"}), "domain.write")
    await expect_error(Forbidden, user.get("/audit-log"), "audit.read")
    (entry,) = (await admin.get("/audit-log", outcome="forbidden"))["items"]
    assert (entry["actor"], entry["action"], entry["domain"]) == (
        "user",
        "domain.write",
        "default",
    )
    assert entry["entity_id"].endswith("/domains")
    # The entry has the caller's domain, so the domain admin sees it too.
    assert len((await domain_admin.get("/audit-log", outcome="forbidden"))["items"]) == 1


@pytest.mark.both_databases
async def test_changes_are_in_the_audit_log(admin: Client, domain_admin: Client) -> None:
    await admin.post("/domains", {"name": "lab"})
    await domain_admin.patch("/users/user", {"full_name": "U", "password": "new pass 1"})
    await admin.delete("/domains/lab")
    page = await admin.get("/audit-log", sort="-id", limit=3)
    assert [(e["actor"], e["action"], e["outcome"]) for e in page["items"]] == [
        ("admin", "domain.delete", "done"),
        ("domain-admin", "user.update", "done"),
        ("admin", "domain.create", "done"),
    ]
    entry = page["items"][1]
    assert entry["details"] == {
        "name": "user",
        "fields": ["full_name", "password"],
        "changes": {"full_name": {"before": "Uma User", "after": "U"}, "password": {}},
    }
    assert (entry["domain"], entry["client_ip"]) == ("default", "127.0.0.1")
    assert [e["entity_name"] for e in page["items"]] == ["lab", "user", "lab"]
    found = await admin.get("/audit-log", entity_name__contains="USE", sort="-entity_name")
    assert entry in found["items"]
    assert "new pass" not in str(page)
    mine = await domain_admin.get("/audit-log", limit=500)
    assert {e["domain"] for e in mine["items"]} == {"default"}


async def test_domain_admin_cannot_grant_host_permissions_that_the_domain_lacks(
    api: Api,
) -> None:
    admin, domain_admin = await api.client("admin"), await api.client("domain-admin")
    few = {"local": ["create-vfolder", "mount-in-session"]}
    more = {"local": [*few["local"], "upload-file"]}
    elsewhere = {"other": ["create-vfolder"]}
    await admin.patch("/domains/default", {"allowed_vfolder_hosts": few})
    for hosts in (more, elsewhere, {**few, **elsewhere}):
        with pytest.raises(Forbidden, match="domain default lacks"):
            await domain_admin.post("/projects", {"name": "vision", "allowed_vfolder_hosts": hosts})
        with pytest.raises(Forbidden, match="ask a superadmin"):
            await domain_admin.patch("/projects/default", {"allowed_vfolder_hosts": hosts})
    path = "/projects/vision"
    made = await domain_admin.post("/projects", {"name": "vision", "allowed_vfolder_hosts": few})
    assert made["allowed_vfolder_hosts"] == few
    # A domain admin may keep permissions that a superadmin granted, but may not grant them again
    # after removing them.
    await admin.patch(path, {"allowed_vfolder_hosts": more})
    await domain_admin.patch(path, {"allowed_vfolder_hosts": more, "description": "x"})
    await domain_admin.patch(path, {"allowed_vfolder_hosts": few})
    with pytest.raises(Forbidden):
        await domain_admin.patch(path, {"allowed_vfolder_hosts": more})


@pytest.mark.both_databases
async def test_users_change_their_own_full_name(api: Api, admin: Client) -> None:
    user = await api.client("user")
    me = await user.get("/me")
    changed = await user.patch(f"/users/{me['id']}", {"full_name": "Ann Kim"})
    assert (changed["full_name"], (await user.get("/me"))["full_name"]) == ("Ann Kim", "Ann Kim")
    for name, match in (("A" * 65, "at most 64"), ("An\u200bn", "U\\+200B at position 3")):
        await expect_error(InvalidRequest, user.patch("/users/user", {"full_name": name}), match)
    await expect_error(Forbidden, user.patch("/users/user", {"full_name": "A", "role": "admin"}))
    await expect_error(NotFound, user.patch("/users/user2", {"full_name": "A"}))
    (entry,) = (await admin.get("/audit-log", actor="user", outcome="done"))["items"]
    assert (entry["action"], entry["entity_name"]) == ("user.update", "user")
    assert entry["details"]["fields"] == ["full_name"]
