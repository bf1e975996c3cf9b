"""Permissions of each Hub route, for each role as caller and each role as target.

The test covers the routes of the installed JupyterHub and of bai-hub. A test fails if a route is
missing from the table below, so that new routes of JupyterHub are reviewed before they are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
from jupyterhub.app import JupyterHub
from tornado.web import RequestHandler

from bai_auth.authenticator import BaiAuthenticator
from tests.e2e.sessions import JSON, checked, wait_for
from tests.hub import RunningHub, running_session
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

SUPERADMINS = {"admin"}
# Domain default has this admin, domain acme has none.
DOMAIN_ADMINS = {"domain-admin"}
USERS = ("user", "domain-admin", "monitor", "admin", "acme-user")
TARGETS = ("user2", *USERS)
ANONYMOUS, SESSION = "anonymous", "session of admin"
CALLERS = (ANONYMOUS, SESSION, *USERS)
SERVER = "probe"
METHODS = ("get", "post", "put", "patch", "delete")
REFUSED = {
    HTTPStatus.FOUND,  # to the sign-in page
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
}

# Rules: who may call a route.
OWN = "own"  # only the target user
NOBODY = "nobody"
READ = "read"  # users who may read the target, and the target user
READ_GROUP = "read group"  # users who may read the members of the group
REPORT = "own, or the session's token"
SUPERADMIN = "superadmin"  # superadmins, and the target user
ADMIN = "admin"  # superadmins and domain admins
OPEN = "open"  # everyone, for example because the target is always the caller
GONE = "gone"  # JupyterHub no longer has the operation: the response must be an error
RULES: Mapping[str, Mapping[str, str]] = {
    # Routes of bai-hub.
    "bai_auth.ChangePasswordHandler": {"get": OPEN, "post": OPEN},
    "bai_auth.LoginHandler": {"get": OPEN, "post": OPEN},
    "HomePage": {"get": OPEN},
    "AdminPage": {"get": ADMIN},
    "SpawnPage": {"get": OWN, "post": OWN, "delete": OWN},
    "ServerHandler": {
        "get": SUPERADMIN,
        "post": OWN,
        "put": OWN,
        "patch": OWN,
        "delete": SUPERADMIN,
    },
    # Pages of the Hub.
    "SpawnPendingHandler": {"get": OWN},
    "TokenPageHandler": {"get": OPEN},
    "AcceptShareHandler": {"get": OPEN, "post": OPEN},
    "RootHandler": {"get": OPEN},
    "UserRedirectHandler": {"get": OPEN},
    "ProxyErrorHandler": {"get": OPEN},
    "HealthCheckHandler": {"get": OPEN},
    "CSPReportHandler": {"post": OPEN},
    "LogoHandler": {"get": OPEN},
    "LogoutHandler": {"get": OPEN},
    "AddSlashHandler": {"get": OPEN},
    "PrefixRedirectHandler": {"get": OPEN},
    # This page shows only that a server is not running. Users who may see its session also see that
    # the session is waiting.
    "ServerPage": dict.fromkeys(("get", "post", "patch", "delete"), OPEN),
    # Users.
    "SelfAPIHandler": {"get": OPEN},
    "UserListAPIHandler": {"get": OPEN, "post": NOBODY},
    "UserAPIHandler": {"get": READ, "post": NOBODY, "patch": NOBODY, "delete": NOBODY},
    "SpawnProgressAPIHandler": {"get": SUPERADMIN},
    "TokenListHandler": {"get": OWN, "post": OWN},
    "UserTokenAPIHandler": {"get": OWN, "delete": OWN},
    "ActivityAPIHandler": {"post": REPORT},
    "UserAdminAccessAPIHandler": {"post": OWN},
    # Groups, which only bai-hub changes.
    "GroupListAPIHandler": {"get": OPEN, "post": NOBODY},
    "GroupAPIHandler": {"get": READ_GROUP, "post": NOBODY, "delete": NOBODY},
    "GroupUsersAPIHandler": {"post": NOBODY, "delete": NOBODY},
    "GroupPropertiesAPIHandler": {"put": NOBODY},
    "GroupShareListAPIHandler": {"get": NOBODY},
    "GroupShareAPIHandler": {"get": NOBODY, "delete": NOBODY},
    # Sharing of whole servers.
    "ServerShareAPIHandler": dict.fromkeys(("get", "post", "patch", "delete"), OWN),
    "ServerShareCodeAPIHandler": dict.fromkeys(("get", "post", "delete"), OWN),
    "UserShareListAPIHandler": {"get": OWN},
    "UserShareAPIHandler": {"get": OWN, "delete": OWN},
    # The Hub itself.
    "RootAPIHandler": {"get": OPEN},
    "InfoAPIHandler": {"get": SUPERADMIN},
    "ShutdownAPIHandler": {"post": NOBODY},
    "ProxyAPIHandler": {"get": NOBODY, "post": NOBODY, "patch": NOBODY},
    "MetricsHandler": {"get": SUPERADMIN},
    "ServiceListAPIHandler": {"get": OPEN},
    "ServiceAPIHandler": {"get": SUPERADMIN, "post": NOBODY, "delete": NOBODY},
    "CookieAPIHandler": {"get": NOBODY},
    "TokenAPIHandler": {"get": GONE, "post": GONE},
    "OAuthAuthorizeHandler": {"get": OPEN, "post": OPEN},
    "OAuthTokenHandler": {"post": OPEN},
    "API404": {},
    "Template404": {},
}
# LogoutHandler would end the caller's sign-in. The others only redirect or respond with 404.
NOT_CALLED = {"LogoutHandler", "PrefixRedirectHandler", "Template404", "AddSlashHandler"}


class Route(NamedTuple):
    pattern: str
    name: str
    method: str

    @property
    def rule(self) -> str:
        rule = RULES[self.name][self.method]
        # If the path contains no user, the target is the caller.
        return OPEN if rule == OWN and "(" not in self.pattern else rule

    @property
    def has_target(self) -> bool:
        return self.rule in (OWN, READ, REPORT) or bool(
            re.search(r"users/\(|groups/\(", self.pattern)
        )


def hub_routes(folder: Path) -> Iterator[tuple[str, type[RequestHandler]]]:
    """Yield the pattern and handler of each route that the Hub uses.

    If several routes have the same pattern, the Hub uses the first.
    """
    secret = folder / "secret"
    secret.write_text("x")
    app = JupyterHub()
    app.authenticator = BaiAuthenticator(manager_url="http://none", hub_token_file=str(secret))
    app.init_handlers()
    seen: set[str] = set()
    for pattern, handler, *_ in app.handlers:
        if pattern not in seen:
            seen.add(pattern)
            yield pattern, handler


def name_of(handler: type[RequestHandler]) -> str:
    is_of_bai_auth = handler.__module__ == "bai_auth.handlers"
    return f"bai_auth.{handler.__name__}" if is_of_bai_auth else handler.__name__


def methods_of(handler: type[RequestHandler]) -> set[str]:
    missing = RequestHandler._unimplemented_method  # type: ignore[attr-defined]  # noqa: SLF001  # of tornado
    return {method for method in METHODS if getattr(handler, method) is not missing}


def path_of(route: Route, target: str, domain: str, token_id: str) -> str:
    """Return a path for a route's pattern.

    The text before each regex group selects the value that replaces the group.
    """
    pattern = re.sub(r"\(\?:.*?\)\)?\?", "", route.pattern).rstrip("$")
    pattern = pattern.replace("/?", "/")
    values = {
        "users": target,
        "user": target,
        "spawn": target,
        "spawn-pending": target,
        "shares": target,
        "share-codes": target,
        "shared": target,
        "servers": SERVER,
        "groups": f"d-{domain}",
        "tokens": token_id,
        "services": "bai",
        "error": "404",
        "token": "made-up",
        "cookie": "made-up",
        "user-redirect": "lab",
    }
    parts: list[str] = []
    last = ""
    for part in re.findall(r"\(\?P<user_path>.*|\([^)]*\)\??|[^/(]+", pattern):
        if part.startswith("(?P<user_path>"):
            break
        # A regex group directly after another regex group stands for the name of a server.
        parts.append(values[last] if last in values and part.startswith("(") else part)
        if part.startswith("("):
            parts[-1] = values.get(last, SERVER)
            last = "a server"
        else:
            last = part
    end = "/" if pattern.endswith("/") else ""
    return "/" + "/".join(parts) + end


def may_call(caller: str, rule: str, target: str) -> bool:
    if rule == OPEN:
        return True
    if caller == SESSION:
        return target == "admin" and rule in (READ, REPORT)
    if caller == ANONYMOUS:
        return False
    is_default = target != "acme-user"
    reads = caller in SUPERADMINS or (caller in DOMAIN_ADMINS and is_default)
    return {
        OWN: caller == target,
        REPORT: caller == target,
        READ_GROUP: reads,
        GONE: False,
        NOBODY: False,
        READ: reads or caller == target,
        SUPERADMIN: caller in SUPERADMINS or caller == target,
        ADMIN: caller in SUPERADMINS | DOMAIN_ADMINS,
    }[rule]


def bearer_header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class World:
    """The running Hub, credentials of each caller, and a server of each target."""

    def __init__(self, hub: RunningHub, stack: ExitStack) -> None:
        self.hub = hub
        self.tokens = {
            name: hub.rest(name).headers["Authorization"].partition(" ")[2] for name in TARGETS
        }
        self.token_ids: dict[str, str] = {}
        self.browsers = {ANONYMOUS: hub.client(), SESSION: hub.client()}
        for name in USERS:
            self.browsers[name] = stack.enter_context(hub.sign_in(name))
            self.browsers[name].get("/hub/home")
        self.api = hub.client()
        for name in TARGETS:
            own = bearer_header(self.tokens[name])
            answer = self.api.put(f"/hub/api/users/{name}/servers/{SERVER}", headers=own)
            assert answer.status_code in (201, 409), answer.text
            me = self.api.get("/hub/api/user", headers=own).json()
            self.token_ids[name] = me["token_id"]

    def call(self, caller: str, route: Route, path: str) -> httpx.Response:
        if "/api/" in route.pattern:
            headers = bearer_header(self.tokens[caller]) if caller in self.tokens else {}
            return self.api.request(route.method, path, headers=headers, json={})
        browser = self.browsers[caller]
        xsrf = browser.cookies.get("_xsrf", path="/hub/") or ""
        headers = {"X-XSRFToken": xsrf, "Referer": f"{self.hub.url}/hub/home"}
        return browser.request(route.method, path, headers=headers)

    def state(self) -> dict[str, Any]:
        """Return, for each target, the state that a caller could change."""
        found: dict[str, Any] = {}
        for name in TARGETS:
            own = bearer_header(self.tokens[name])
            answer = self.api.get(f"/hub/api/users/{name}?include_stopped_servers=1", headers=own)
            model: JSON = checked(answer, 200)
            servers = {
                server: (facts["stopped"], facts["display_name"], facts["user_options"])
                for server, facts in model["servers"].items()
                if server == SERVER
            }
            tokens = checked(self.api.get(f"/hub/api/users/{name}/tokens", headers=own), 200)
            ids = {
                token["id"]
                for token in tokens["api_tokens"]
                if "server" not in token["note"].lower()
            }
            found[name] = (model["admin"], model["roles"], model["groups"], servers, len(ids))
        return found


@pytest.fixture
def world(hub: RunningHub) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(hub, stack)


def test_every_route_of_the_hub_is_classified(tmp_path: Path) -> None:
    known = {name: set(methods) for name, methods in RULES.items()}
    actual = {name_of(handler): methods_of(handler) for _, handler in hub_routes(tmp_path)}
    assert actual == known


def test_no_caller_exceeds_the_permissions_of_its_role(world: World, tmp_path: Path) -> None:
    hub = world.hub
    session = running_session(hub, "admin")
    world.tokens[SESSION] = session_token(session["id"])
    before = world.state()
    wrong: list[str] = []
    for pattern, handler in hub_routes(tmp_path):
        name = name_of(handler)
        for method in RULES[name]:
            route = Route(pattern, name, method)
            if name not in NOT_CALLED:
                wrong += violations_of(world, route)
    assert not wrong, "\n".join(wrong)
    assert world.state() == before
    with hub.rest("admin") as rest:
        assert rest.get(f"/sessions/{session['id']}").json()["status"] == "RUNNING"
        checked(rest.delete(f"/sessions/{session['id']}"), 202)
        wait_for(rest, session["id"], "TERMINATED")


def violations_of(world: World, route: Route) -> Iterator[str]:
    """Call a route as each caller for each target; yield a message for each violation."""
    targets = TARGETS if route.has_target else ("user2",)
    for caller, target in product(CALLERS, targets):
        is_allowed = may_call(caller, route.rule, target)
        if is_allowed and route.method != "get":
            continue  # The call would change the state on which later calls depend.
        domain = "acme" if target == "acme-user" else "default"
        path = path_of(route, target, domain, world.token_ids[target])
        if is_allowed and "progress" in path:
            continue  # The call would block until the server starts.
        answer = world.call(caller, route, path)
        is_refused = answer.status_code in REFUSED and not answer.has_redirect_location
        is_refused |= "/hub/login" in answer.headers.get("Location", "")
        text = f"{route.method.upper()} {path} by {caller}: {answer.status_code}"
        if route.rule == GONE:
            if answer.status_code < HTTPStatus.BAD_REQUEST:
                yield f"{text}: must not succeed"
        elif answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and route.rule != OPEN:
            yield f"{text}: fails"
        elif not is_allowed and not is_refused:
            yield f"{text}: must be denied"
        elif is_allowed and answer.status_code == HTTPStatus.FORBIDDEN and route.rule != OPEN:
            yield f"{text}: must be allowed"


def session_token(session_id: str) -> str:
    """Return the token of a session's server. All programs in the session can read it."""

    def find() -> str | None:
        for process in psutil.process_iter():
            try:
                environ = process.environ()
            except psutil.Error:
                continue
            if environ.get("BAI_SESSION_ID") == session_id and "JUPYTERHUB_API_TOKEN" in environ:
                return environ["JUPYTERHUB_API_TOKEN"]
        return None

    return wait_until(find, 20, "the session's process")
