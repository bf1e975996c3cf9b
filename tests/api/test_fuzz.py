"""Random requests generated from the OpenAPI document; every response must conform to it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from requests.auth import AuthBase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bai_services.api import openapi
from bai_services.api.routes import ROUTES
from bai_services.core.accounts import signature
from bai_services.core.accounts.records import NewKeypair
from tests.api.resource_factory import ResourceFactory
from tests.testbed.manager import MovableClock, make_world, manager_on, serving

EXAMPLES = int(os.environ.get("BAI_FUZZ_EXAMPLES", "5"))
SEED = 20260302
# Each generated request is sent by all roles, because generating a request takes four times the CPU
# time of sending it. Administrators are last: their deletions are permitted.
ROLES = ("user", "admin")
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)

# The event stream does not end; test_permissions.py tests its permissions.
ENDLESS = {"GET /events"}
# The stream of a live session's log ends with the session; test_logs.py tests it.
ONLY_UNKNOWN = {"GET /sessions/{key}/log-stream"}

# Send the body of an upload chunk unchanged.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")

DOCUMENT = openapi.document(ROUTES, "")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    f"{result.ok().method.upper()} {result.ok().path}": result.ok()
    for result in SCHEMA.get_all_operations()
}
# Test deletions last, because the other requests need the resources.
NAMES = sorted(set(OPERATIONS) - ENDLESS, key=lambda name: (name.startswith("DELETE"), name))

# Maps the first component of a path to the method of ResourceFactory that creates the resource
# ``{key}``.
CREATORS = {
    "domains": "domain",
    "projects": "project",
    "users": "other_user",
    "keypairs": "keypair",
    "sign-up-invitations": "sign_up_invitation",
    "keypair-policies": "keypair_policy",
    "user-policies": "user_policy",
    "project-policies": "project_policy",
    "resource-groups": "linked_group",
    "agents": "agent",
    "agent-invitations": "agent_invitation",
    "agent-joins": "joined_agent",
    "provisioned-machines": "provisioned_machine",
    "images": "image",
    "image-aliases": "alias",
    "custom-images": "custom_image",
    "image-registries": "image_registry",
    "presets": "preset",
    "idle-checkers": "idle_checker",
    "idle-checker-bindings": "idle_binding",
    "vfolders": "folder_with_file",
    "sessions": "session",
    "session-templates": "template",
    "schedules": "schedule",
    "endpoints": "endpoint",
    "chats": "chat",
    "models": "model",
    "model-imports": "model_import",
    "pipelines": "pipeline",
    "pipeline-runs": "pipeline_run",
    "pipeline-schedules": "pipeline_schedule",
    "pipeline-triggers": "pipeline_trigger",
    "pipeline-templates": "pipeline_template",
    "folder-imports": "folder_import",
}


class KeypairAuth(AuthBase):
    """Signs requests with a keypair."""

    def __init__(self, keys: NewKeypair) -> None:
        self._keys = keys

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        now = datetime.now(UTC).replace(microsecond=0)
        host = (request.url or "").split("/")[2]
        signed = signature.sign(
            self._keys.secret_key,
            method=request.method or "",
            path=request.path_url,
            host=host,
            date=now,
            content_type=str(request.headers.get("Content-Type", "")),
        )
        request.headers.update(
            {
                "Host": host,
                "Date": now.isoformat(),
                signature.VERSION_HEADER: signature.VERSION,
                "Authorization": signature.authorization(self._keys.access_key, signed),
            }
        )
        return request


@dataclass
class ManagerThread:
    """A manager that runs in a separate thread.

    ``resources`` maps each key of ``CREATORS`` to the key of an existing resource.
    """

    home: Path
    url: str = ""
    keys: dict[str, NewKeypair] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        self._is_ready.wait(60)
        if self.failure is not None or not self.url:
            raise RuntimeError("the manager did not start") from self.failure

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop_requested.set)
        self._thread.join(60)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop_requested = asyncio.get_running_loop(), asyncio.Event()
        database = f"sqlite+aiosqlite:///{self.home}/bai.sqlite"
        async with manager_on(database, self.home, MovableClock()) as manager:
            world = await make_world(manager, manager.clock)  # type: ignore[arg-type]
            # No agent answers the check of a cluster.
            manager.cluster.doctor.report_seconds = 0.1
            await manager.folders.vfolders.start()
            async with serving(world) as api:
                factory = await ResourceFactory.of(api)
                for path, creator in CREATORS.items():
                    self.resources[path] = await getattr(factory, creator)()
                self.keys, self.url = world.keys, f"{api.url}/api/v1"
                self._is_ready.set()
                await self._stop_requested.wait()


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerThread]:
    manager = ManagerThread(tmp_path_factory.mktemp("fuzz"))
    manager.start()
    yield manager
    manager.stop()


def requests_for(operation: Any) -> st.SearchStrategy[Any]:
    """Generate valid requests and, if the operation has a body or a query, invalid requests."""
    valid: st.SearchStrategy[Any] = operation.as_strategy()
    if not operation.body and not operation.query:
        return valid
    return valid | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)


@pytest.mark.parametrize("name", NAMES)
def test_responses_to_random_requests_conform_to_the_document(
    manager: ManagerThread, name: str
) -> None:
    operation = OPERATIONS[name]
    collection = name.split("/")[1]

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=requests_for(operation), exists=st.booleans())
    def send(case: Any, exists: bool) -> None:
        has_key = "key" in (case.path_parameters or {}) and name not in ONLY_UNKNOWN
        if exists and has_key and collection in manager.resources:
            case.path_parameters["key"] = manager.resources[collection]
        for role in ROLES:
            with requests.Session() as http:
                http.auth = KeypairAuth(manager.keys[role])
                response = case.call(base_url=manager.url, session=http, timeout=20)
            try:
                case.validate_response(response, checks=CHECKS)
            except BaseException as error:
                error.add_note(f"role: {role}")
                raise

    send()
