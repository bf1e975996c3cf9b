"""Demos for end-to-end tests: one shared demo per engine, and separate demos for single tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.e2e.sessions import remove_created_since
from tests.hub import RunningHub
from tests.testbed.mail_server import MailServerThread, serving_mail

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext

    from tests.testbed.chromium import SharedBrowser
    from tests.testbed.docker_engine import DockerEngine

SHARED: set[RunningHub] = set()
# The time at which the failed phase of a test started.
FAILED_SINCE = pytest.StashKey[datetime]()

# Listen on all addresses, because some tests connect from another machine.
LISTEN_ON_ALL_ADDRESSES = """
import os
c.JupyterHub.bind_url = f"http://:{os.environ['BAI_PORT']}"
"""


# The pages of users who are not signed in, which are disabled by default.
SELF_SERVICE = """
import os
c.SelfService.public_url = f"http://127.0.0.1:{os.environ['BAI_PORT']}/"
c.SelfService.password_reset = True
c.SelfService.sign_up = True
c.SelfService.account_deletion = True
c.SelfService.sign_up_email_domains = ["example.org"]
c.SelfService.terms_of_service = "https://example.org/terms"
c.SelfService.privacy_policy = "We keep your <b>name</b>. Nothing else."
"""


def signed_token_site(home: Path) -> str:
    """Create the keys of a site whose tokens the shared demo accepts; return the configuration."""
    key = ec.generate_private_key(ec.SECP256R1())
    (home / "site.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    public = home / "site.pem"
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return f"""
c.BaiAuthenticator.signed_token_sites = [
    {{
        "name": "campus",
        "issuer": "https://campus.example.org",
        "audience": "bai-hub",
        "public_key_file": "{public}",
        "creates_accounts": True,
        "domain": "default",
        "projects": ["default"],
    }}
]
"""


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServerThread]:
    """The mail server of the shared demo."""
    with serving_mail() as made:
        yield made


@pytest.fixture(scope="session")
def hub(
    tmp_path_factory: pytest.TempPathFactory, mail_server: MailServerThread
) -> Iterator[RunningHub]:
    """The shared demo on the process engine. Each test must remove its sessions."""
    home = tmp_path_factory.mktemp("hub")
    further = home / "further.py"
    further.write_text(SELF_SERVICE + signed_token_site(home))
    environment = mail_server.environment(
        BAI_SHOW_AGENTS="1",
        BAI_IMPORT_NETWORKS="127.0.0.0/8",
        BAI_CONFIG=str(further),
        BAI_ONE_TIME_CODES="optional,needs-codes=required",
    )
    yield from _shared(RunningHub(home, environment=environment))


def _shared(running: RunningHub) -> Iterator[RunningHub]:
    try:
        SHARED.add(running.start())
        yield running
    finally:
        SHARED.discard(running)
        running.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def profile(
    hub: RunningHub, browser: Browser, shared_browser: SharedBrowser
) -> BrowserContext:
    """A profile of the browser for JupyterLab: its pages share a sign-in and compiled scripts.

    JupyterLab takes half as much CPU time to load as in a new profile.
    """
    return await shared_browser.profile(hub.url, name="panel")


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[Callable[..., RunningHub]]:
    """Return a function that creates a demo for one test.

    Example: ``own_hub(engine="docker", environment={…}).start()``. The demo stops when the
    test ends.
    """
    made: list[RunningHub] = []

    def make(**options: Any) -> RunningHub:
        made.append(RunningHub(tmp_path / f"home-{len(made)}", **options))
        return made[-1]

    yield make
    for running in made:
        running.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the demo's logs to the report of a failed test, and clean up after that test."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's
    if report.when == "teardown":
        if since := item.stash.get(FAILED_SINCE, None):
            del item.stash[FAILED_SINCE]
            report.sections += _clean_up(since)
    elif report.failed:
        item.stash[FAILED_SINCE] = datetime.fromtimestamp(call.start, UTC)
    if report.when == "call" and report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, RunningHub):
                report.sections.append(("logs of the demo", value.logs()))


def _clean_up(since: datetime) -> list[tuple[str, str]]:
    """Remove the sessions and folders of a failed test; return the errors as report sections.

    If they remained, later tests could not use their names and resources.
    """
    problems = []
    for running in SHARED:
        try:
            with running.rest("admin") as rest:
                remove_created_since(rest, since)
        except (AssertionError, httpx.HTTPError) as error:
            # Do not raise: an exception in a hook would abort the whole test run.
            problems.append(("clean-up after a failed test", str(error)))
    return problems


@pytest.fixture(scope="session")
def docker_hub(
    docker_engine: DockerEngine, session_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningHub]:
    """The demo on the docker engine, with the session image of this working tree."""
    home = tmp_path_factory.mktemp("docker-hub")
    further = home / "further.py"
    further.write_text(LISTEN_ON_ALL_ADDRESSES)
    environment = {"DOCKER_HOST": docker_engine.host, "BAI_IMAGE": session_image}
    environment["BAI_CONFIG"] = str(further)
    # The agent starts batch sessions itself, so that tests on ``any_hub`` cover both ways: in the
    # demo on the process engine, the Hub starts them.
    environment["BAI_AGENT_RUNS_BATCH"] = "1"
    # The agent reports more cores than a small machine has, for tests with several sessions at
    # once.
    environment["BAI_AGENT_CPU"] = "8"
    yield from _shared(RunningHub(home, engine="docker", environment=environment))


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def any_hub(request: pytest.FixtureRequest) -> RunningHub:
    """The shared demo, once for each engine."""
    name = {"process": "hub", "docker": "docker_hub"}[request.param]
    hub: RunningHub = request.getfixturevalue(name)
    return hub
