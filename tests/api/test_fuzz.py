"""Made-up requests from our own OpenAPI document: no answer is a 500, all are as it promises."""

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
from bai_services.demo import Keys
from tests.api.things import Things
from tests.testbed.manager import MovableClock, make_world, manager_on, serving

EXAMPLES = int(os.environ.get("BAI_FUZZ_EXAMPLES", "8"))
SEED = 20260302
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)

# A stream of events has no end; its refusals are in test_permissions.py.
ENDLESS = {"GET /events"}

# A piece of an upload, sent as it is.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")

DOCUMENT = openapi.document(ROUTES, "")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    f"{result.ok().method.upper()} {result.ok().path}": result.ok()
    for result in SCHEMA.get_all_operations()
}
# What is deleted can be asked nothing more, so that comes last.
NAMES = sorted(set(OPERATIONS) - ENDLESS, key=lambda name: (name.startswith("DELETE"), name))

# Things that a made-up request may hit: noun of things.py by the path's first part.
NOUNS = {
    "domains": "domain",
    "projects": "project",
    "users": "person",
    "keypairs": "keypair",
    "keypair-policies": "keypair_policy",
    "user-policies": "user_policy",
    "project-policies": "project_policy",
    "resource-groups": "linked_group",
    "agents": "node",
    "images": "image",
    "image-aliases": "alias",
    "presets": "preset",
    "vfolders": "folder_with_file",
    "sessions": "session",
    "session-templates": "template",
}


class Signed(AuthBase):
    """Signs with a keypair."""

    def __init__(self, keys: Keys) -> None:
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
class Live:
    """A manager that serves in a thread of its own."""

    home: Path
    url: str = ""
    keys: dict[str, Keys] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
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
        self._loop.call_soon_threadsafe(self._told.set)
        self._thread.join(60)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        database = f"sqlite+aiosqlite:///{self.home}/bai.sqlite"
        async with manager_on(database, self.home, MovableClock()) as manager:
            world = await make_world(manager, manager.clock)  # type: ignore[arg-type]
            await manager.folders.vfolders.start()
            async with serving(world) as api:
                things = await Things.of(api)
                for path, noun in NOUNS.items():
                    self.known[path] = await getattr(things, noun)()
                self.keys, self.url = world.keys, f"{api.url}/api/v1"
                self._is_ready.set()
                await self._told.wait()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("fuzz"))
    made.start()
    yield made
    made.stop()


def cases(operation: Any) -> st.SearchStrategy[Any]:
    """Return requests that fit the document and, where it can be, ones that do not."""
    fitting: st.SearchStrategy[Any] = operation.as_strategy()
    if not operation.body and not operation.query:
        return fitting
    return fitting | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("role", ["admin", "user"])
def test_made_up_requests(live: Live, role: str, name: str) -> None:
    operation = OPERATIONS[name]
    noun = name.split("/")[1]

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(operation), is_known=st.booleans())
    def ask(case: Any, is_known: bool) -> None:
        if is_known and noun in live.known and "key" in (case.path_parameters or {}):
            case.path_parameters["key"] = live.known[noun]
        with requests.Session() as http:
            http.auth = Signed(live.keys[role])
            answer = case.call(base_url=live.url, session=http, timeout=20)
        case.validate_response(answer, checks=CHECKS)

    ask()
