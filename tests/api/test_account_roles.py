"""Who may do what with accounts: one table over every route and role."""

from __future__ import annotations

import pytest

from bai_services.core.errors import BaiError, Forbidden, NotFound
from tests.testbed.manager import Api

PEOPLE = ("admin", "domain-admin", "user", "monitor", "acme-user")
OK, NO, NIL = "ok", "forbidden", "not-found"

# Route and body, then how it ends for each of PEOPLE. {KEY:x} is the access key of x.
TABLE = [
    ("GET /domains", None, (OK, OK, OK, OK, OK)),
    ("GET /domains/default", None, (OK, OK, OK, OK, NIL)),
    ("GET /domains/acme", None, (OK, NIL, NIL, OK, OK)),
    ("POST /domains", {"name": "lab"}, (OK, NO, NO, NO, NO)),
    ("PATCH /domains/default", {"description": "x"}, (OK, NO, NO, NO, NIL)),
    ("DELETE /domains/default", None, ("in-use", NO, NO, NO, NIL)),
    ("GET /projects", None, (OK, OK, OK, OK, OK)),
    ("GET /projects/research", None, (OK, OK, NIL, OK, NIL)),
    ("POST /projects", {"name": "x"}, (OK, OK, NO, NO, NO)),
    ("POST /projects", {"name": "x", "domain": "acme"}, (OK, NIL, NO, NO, NO)),
    ("PATCH /projects/default", {"description": "x"}, (OK, OK, NIL, NO, NIL)),
    ("GET /projects/default/members", None, (OK, OK, NIL, OK, NIL)),
    ("PUT /projects/default/members/user2", None, (OK, OK, NIL, NO, NIL)),
    ("DELETE /projects/default/members/user2", None, (OK, OK, NIL, NO, NIL)),
    ("DELETE /projects/research", None, (OK, OK, NIL, NO, NIL)),
    ("GET /users", None, (OK, OK, OK, OK, OK)),
    ("GET /users/user", None, (OK, OK, OK, OK, NIL)),
    ("GET /users/user2", None, (OK, OK, NIL, OK, NIL)),
    ("GET /users/acme-user", None, (OK, NIL, NIL, OK, OK)),
    ("POST /users", {"username": "x", "email": "x@y.z"}, (OK, OK, NO, NO, NO)),
    (
        "POST /users",
        {"username": "x", "email": "x@y.z", "role": "admin"},
        (OK, NO, NO, NO, NO),
    ),
    (
        "POST /users",
        {"username": "x", "email": "x@y.z", "domain": "acme"},
        (OK, NIL, NO, NO, NO),
    ),
    ("PATCH /users/user", {"full_name": "x"}, (OK, OK, OK, NO, NIL)),
    ("PATCH /users/user", {"status": "inactive"}, (OK, OK, NO, NO, NIL)),
    ("PATCH /users/user", {"password": "abc 123 !"}, (OK, OK, NO, NO, NIL)),
    ("PATCH /users/user", {"role": "admin"}, (OK, NO, NO, NO, NIL)),
    ("PATCH /users/user", {"container_uid": 4321}, (OK, NO, NO, NO, NIL)),
    ("PATCH /users/user", {"domain": "acme"}, (OK, NO, NO, NO, NIL)),
    ("PATCH /users/admin", {"full_name": "x"}, (OK, NO, NIL, NO, NIL)),
    ("PATCH /users/monitor", {"password": "abc 123 !"}, (OK, NO, NIL, NO, NIL)),
    ("PATCH /users/acme-user", {"full_name": "x"}, (OK, NIL, NIL, NO, OK)),
    ("DELETE /users/user2", None, (OK, OK, NIL, NO, NIL)),
    ("DELETE /users/monitor", None, (OK, NO, NIL, NO, NIL)),
    ("POST /users/user/sign-out", None, (OK, OK, OK, NO, NIL)),
    ("POST /users/user/unlock", None, (OK, OK, NO, NO, NIL)),
    ("GET /keypairs", None, (OK, OK, OK, OK, OK)),
    ("GET /keypairs/{KEY:user}", None, (OK, OK, OK, OK, NIL)),
    ("GET /keypairs/{KEY:acme-user}", None, (OK, NIL, NIL, OK, OK)),
    ("POST /keypairs", {"user": "user"}, (OK, OK, NO, NO, NO)),
    ("POST /keypairs", {"user": "admin"}, (OK, NO, NO, NO, NO)),
    ("PATCH /keypairs/{KEY:user}", {"new_secret": True}, (OK, OK, OK, NO, NIL)),
    ("PATCH /keypairs/{KEY:user}", {"rate_limit": 9}, (OK, OK, NO, NO, NIL)),
    ("PATCH /keypairs/{KEY:admin}", {"new_secret": True}, (OK, NO, NIL, NO, NIL)),
    ("DELETE /keypairs/{KEY:user}", None, ("in-use", "in-use", NO, NO, NIL)),
    ("GET /keypair-policies", None, (OK, OK, OK, OK, OK)),
    ("GET /user-policies/default", None, (OK, OK, OK, OK, OK)),
    ("POST /keypair-policies", {"name": "x"}, (OK, NO, NO, NO, NO)),
    ("PATCH /user-policies/default", {"max_vfolder_count": 1}, (OK, NO, NO, NO, NO)),
    ("DELETE /project-policies/default", None, ("in-use", NO, NO, NO, NO)),
    ("GET /audit-log", None, (OK, OK, NO, OK, NO)),
    ("GET /metrics", None, (OK, NO, NO, OK, NO)),
    ("GET /auth/accounts/user", None, (NO, NO, NO, NO, NO)),
    ("POST /auth/verify", {"name": "user", "password": "x"}, (NO, NO, NO, NO, NO)),
]


async def outcome(api: Api, who: str, route: str, body: object) -> str:
    method, _, path = route.partition(" ")
    for name, keys in api.world.keys.items():
        path = path.replace(f"{{KEY:{name}}}", keys.access_key)
    client = await api.client(who)
    try:
        # Metrics are no JSON; the rest of the way is the same.
        if path == "/metrics":
            async with client.stream(path):
                return OK
        await client.call(method, path, body=body)
    except BaiError as error:
        return error.code
    return OK


CHANGES = [
    pytest.param(who, route, body, id=f"{who} {route} {body}")
    for route, body, expected in TABLE
    for who, ends in zip(PEOPLE, expected, strict=True)
    if ends == OK and not route.startswith("GET")
]


@pytest.mark.parametrize("who", range(len(PEOPLE)), ids=PEOPLE)
async def test_what_is_read_and_what_is_refused(api: Api, who: int) -> None:
    for route, body, expected in TABLE:
        if expected[who] != OK or route.startswith("GET"):
            ends = await outcome(api, PEOPLE[who], route, body)
            assert (route, body, ends) == (route, body, expected[who])


# Each in a world of its own, as it changes it; that both databases take it is shown elsewhere.
@pytest.mark.parametrize("who, route, body", CHANGES)
async def test_what_may_be_changed(api: Api, who: str, route: str, body: object) -> None:
    assert await outcome(api, who, route, body) == OK


@pytest.mark.parametrize(
    "path, field, seen",
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
async def test_lists_show_what_the_role_may_see(
    api: Api, path: str, field: str, seen: dict[str, str]
) -> None:
    for who, expected in seen.items():
        page = await (await api.client(who)).get(path)
        assert sorted(item[field] for item in page["items"]) == expected.split()
        assert page["total"] == len(expected.split())


async def test_what_one_may_not_see_cannot_be_told_from_what_is_not_there(api: Api) -> None:
    user = await api.client("user")
    for path in ("/users/user2", "/users/nobody"):
        with pytest.raises(NotFound, match="or you may not see them"):
            await user.get(path)
    with pytest.raises(Forbidden):
        await user.get("/audit-log")
