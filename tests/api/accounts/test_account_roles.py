"""Permissions of roles on domains, projects, users, keypairs and policies."""

from __future__ import annotations

import pytest

from bai_services.core.errors import BaiError, Forbidden, NotFound
from tests.testbed.manager import Api

CALLERS = ("admin", "domain-admin", "user", "monitor", "acme-user")
OK, DENIED, MISSING = "ok", "forbidden", "not-found"

# Request, body, and the outcomes in the order of CALLERS. {KEY:x} is the access key of user x.
TABLE = [
    ("GET /domains", None, (OK, OK, OK, OK, OK)),
    ("GET /domains/default", None, (OK, OK, OK, OK, MISSING)),
    ("GET /domains/acme", None, (OK, MISSING, MISSING, OK, OK)),
    ("POST /domains", {"name": "lab"}, (OK, DENIED, DENIED, DENIED, DENIED)),
    ("PATCH /domains/default", {"description": "x"}, (OK, DENIED, DENIED, DENIED, MISSING)),
    ("DELETE /domains/default", None, ("in-use", DENIED, DENIED, DENIED, MISSING)),
    ("GET /projects", None, (OK, OK, OK, OK, OK)),
    ("GET /projects/research", None, (OK, OK, MISSING, OK, MISSING)),
    ("POST /projects", {"name": "x"}, (OK, OK, DENIED, DENIED, DENIED)),
    ("POST /projects", {"name": "x", "domain": "acme"}, (OK, MISSING, DENIED, DENIED, DENIED)),
    ("PATCH /projects/default", {"description": "x"}, (OK, OK, MISSING, DENIED, MISSING)),
    ("GET /projects/default/members", None, (OK, OK, MISSING, OK, MISSING)),
    ("PUT /projects/default/members/user2", None, (OK, OK, MISSING, DENIED, MISSING)),
    ("DELETE /projects/default/members/user2", None, (OK, OK, MISSING, DENIED, MISSING)),
    ("DELETE /projects/research", None, (OK, OK, MISSING, DENIED, MISSING)),
    ("GET /users", None, (OK, OK, OK, OK, OK)),
    ("GET /users/user", None, (OK, OK, OK, OK, MISSING)),
    ("GET /users/user2", None, (OK, OK, MISSING, OK, MISSING)),
    ("GET /users/acme-user", None, (OK, MISSING, MISSING, OK, OK)),
    ("POST /users", {"username": "x", "email": "x@y.z"}, (OK, OK, DENIED, DENIED, DENIED)),
    (
        "POST /users",
        {"username": "x", "email": "x@y.z", "role": "admin"},
        (OK, DENIED, DENIED, DENIED, DENIED),
    ),
    (
        "POST /users",
        {"username": "x", "email": "x@y.z", "domain": "acme"},
        (OK, MISSING, DENIED, DENIED, DENIED),
    ),
    ("PATCH /users/user", {"full_name": "x"}, (OK, OK, OK, DENIED, MISSING)),
    ("PATCH /users/user", {"status": "inactive"}, (OK, OK, DENIED, DENIED, MISSING)),
    ("PATCH /users/user", {"password": "abc 123 !"}, (OK, OK, DENIED, DENIED, MISSING)),
    ("PATCH /users/user", {"role": "admin"}, (OK, DENIED, DENIED, DENIED, MISSING)),
    ("PATCH /users/user", {"container_uid": 4321}, (OK, DENIED, DENIED, DENIED, MISSING)),
    ("PATCH /users/user", {"domain": "acme"}, (OK, DENIED, DENIED, DENIED, MISSING)),
    ("PATCH /users/admin", {"full_name": "x"}, (OK, DENIED, MISSING, DENIED, MISSING)),
    ("PATCH /users/monitor", {"password": "abc 123 !"}, (OK, DENIED, MISSING, DENIED, MISSING)),
    ("PATCH /users/acme-user", {"full_name": "x"}, (OK, MISSING, MISSING, DENIED, OK)),
    ("DELETE /users/user2", None, (OK, OK, MISSING, DENIED, MISSING)),
    ("DELETE /users/monitor", None, (OK, DENIED, MISSING, DENIED, MISSING)),
    ("POST /users/user/sign-out", None, (OK, OK, OK, DENIED, MISSING)),
    ("POST /users/user/unlock", None, (OK, OK, DENIED, DENIED, MISSING)),
    ("GET /keypairs", None, (OK, OK, OK, OK, OK)),
    ("GET /keypairs/{KEY:user}", None, (OK, OK, OK, OK, MISSING)),
    ("GET /keypairs/{KEY:acme-user}", None, (OK, MISSING, MISSING, OK, OK)),
    ("POST /keypairs", {"user": "user"}, (OK, OK, DENIED, DENIED, DENIED)),
    ("POST /keypairs", {"user": "admin"}, (OK, DENIED, DENIED, DENIED, DENIED)),
    ("PATCH /keypairs/{KEY:user}", {"new_secret": True}, (OK, OK, OK, DENIED, MISSING)),
    ("PATCH /keypairs/{KEY:user}", {"rate_limit": 9}, (OK, OK, DENIED, DENIED, MISSING)),
    ("PATCH /keypairs/{KEY:admin}", {"new_secret": True}, (OK, DENIED, MISSING, DENIED, MISSING)),
    ("DELETE /keypairs/{KEY:user}", None, ("in-use", "in-use", DENIED, DENIED, MISSING)),
    ("GET /keypair-policies", None, (OK, OK, OK, OK, OK)),
    ("GET /user-policies/default", None, (OK, OK, OK, OK, OK)),
    ("POST /keypair-policies", {"name": "x"}, (OK, DENIED, DENIED, DENIED, DENIED)),
    (
        "PATCH /user-policies/default",
        {"max_vfolder_count": 1},
        (OK, DENIED, DENIED, DENIED, DENIED),
    ),
    ("DELETE /project-policies/default", None, ("in-use", DENIED, DENIED, DENIED, DENIED)),
    ("GET /audit-log", None, (OK, OK, DENIED, OK, DENIED)),
    ("GET /metrics", None, (OK, DENIED, DENIED, OK, DENIED)),
    ("GET /auth/accounts/user", None, (DENIED, DENIED, DENIED, DENIED, DENIED)),
    (
        "POST /auth/verify",
        {"name": "user", "password": "x"},
        (DENIED, DENIED, DENIED, DENIED, DENIED),
    ),
]


async def outcome_of(api: Api, caller: str, request: str, body: object) -> str:
    method, _, path = request.partition(" ")
    for name, keys in api.world.keys.items():
        path = path.replace(f"{{KEY:{name}}}", keys.access_key)
    client = await api.client(caller)
    try:
        # The client cannot parse metrics, because they are not JSON.
        if path == "/metrics":
            async with client.stream(path):
                return OK
        await client.call(method, path, body=body)
    except BaiError as error:
        return error.code
    return OK


PERMITTED_CHANGES = [
    pytest.param(caller, request_, body, id=f"{caller} {request_} {body}")
    for request_, body, outcomes in TABLE
    for caller, outcome in zip(CALLERS, outcomes, strict=True)
    if outcome == OK and not request_.startswith("GET")
]


@pytest.mark.parametrize("caller", CALLERS)
async def test_reads_and_denied_changes_have_the_expected_outcome(api: Api, caller: str) -> None:
    for request, body, outcomes in TABLE:
        expected = outcomes[CALLERS.index(caller)]
        if expected != OK or request.startswith("GET"):
            outcome = await outcome_of(api, caller, request, body)
            assert (request, body, outcome) == (request, body, expected)


# One test per change, because each change needs a new database.
@pytest.mark.parametrize("caller, request_, body", PERMITTED_CHANGES)
async def test_permitted_change_succeeds(
    api: Api, caller: str, request_: str, body: object
) -> None:
    assert await outcome_of(api, caller, request_, body) == OK


@pytest.mark.parametrize(
    "path, field, visible",
    [
        pytest.param(
            "/domains",
            "name",
            {"admin": "acme default", "domain-admin": "default", "user": "default"},
            id="domains",
        ),
        pytest.param(
            "/projects",
            "name",
            {"admin": "default default research", "domain-admin": "default research"}
            | {"user": "default", "monitor": "default default research"},
            id="projects",
        ),
        pytest.param(
            "/users",
            "username",
            {"domain-admin": "admin domain-admin monitor user user2", "user": "user"}
            | {"acme-user": "acme-user"},
            id="users",
        ),
        pytest.param(
            "/keypairs",
            "user",
            {"domain-admin": "admin domain-admin monitor user user2", "user": "user"}
            | {"monitor": "acme-user admin domain-admin monitor user user2"},
            id="keypairs",
        ),
    ],
)
async def test_lists_contain_only_objects_visible_to_the_role(
    api: Api, path: str, field: str, visible: dict[str, str]
) -> None:
    for caller, expected in visible.items():
        page = await (await api.client(caller)).get(path)
        assert sorted(item[field] for item in page["items"]) == expected.split()
        assert page["total"] == len(expected.split())


async def test_hidden_and_missing_users_give_the_same_error(api: Api) -> None:
    user = await api.client("user")
    for path in ("/users/user2", "/users/nobody"):
        with pytest.raises(NotFound, match="or you may not see this user"):
            await user.get(path)
    with pytest.raises(Forbidden):
        await user.get("/audit-log")
