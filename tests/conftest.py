"""Fixtures for real parts: lazy, skipped where a part is missing, failed where it is required.

``BAI_REQUIRE=docker,postgres,browser,btrfs`` turns a skip into a failure, so that CI cannot stay
green without having run what it should. ``BAI_RERUNS=2`` tries what failed outside of the pure
core up to twice more and names it in the summary: real processes on a small, shared machine have a
timing.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.testbed import PartMissing

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.testbed.docker_engine import DockerEngine
    from tests.testbed.postgres import Postgres

# What a fixture stands on, so that `-m "not docker"` leaves out every test that needs it.
MARKER_OF_FIXTURE = {
    "docker_engine": "docker",
    "session_image": "docker",
    "postgres_url": "postgres",
    "postgres_server": "postgres",
    "browser": "browser",
}
PURE = Path(__file__).parent / "core"
BUILD_SECONDS = 1200
FIXTURE_OF_MARKER = {"docker": "docker_engine", "postgres": "postgres_server", "browser": "browser"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reruns = int(os.environ.get("BAI_RERUNS", "0"))
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        markers = {MARKER_OF_FIXTURE[name] for name in names & MARKER_OF_FIXTURE.keys()}
        callspec = getattr(item, "callspec", None)
        if callspec is not None and callspec.params.get("database_url") == "postgres":
            markers.add("postgres")
        for marker in markers:
            item.add_marker(marker)
        # The first test that asks for the session image waits until it is built.
        may_build = item.get_closest_marker("docker") or item.get_closest_marker("e2e")
        if may_build and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS))
        if reruns and PURE not in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=reruns))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why what passed at its second try failed at its first."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"RERUN {report.nodeid}", sep="-")
        terminalreporter.write_line(report.longreprtext)


def missing(part: str, reason: object) -> NoReturn:
    """Skip the test for want of ``part``, or fail it where ``BAI_REQUIRE`` names the part."""
    required = {name.strip() for name in os.environ.get("BAI_REQUIRE", "").split(",")}
    if part in required:
        pytest.fail(f"{part} is required (BAI_REQUIRE) but missing: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


@pytest.fixture
def refused_sockets() -> Iterator[None]:
    """Collect what docker-py leaves of connections that nobody answered: unclosed sockets."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def _parts_of_markers(request: pytest.FixtureRequest) -> None:
    """Check the part behind a marker also where the test does not name its fixture."""
    for marker, fixture in FIXTURE_OF_MARKER.items():
        if (
            marker != "browser"  # launched per test; nothing to share
            and request.node.get_closest_marker(marker)
            and fixture not in request.fixturenames
        ):
            request.getfixturevalue(fixture)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The session's PostgreSQL server, for tests that make databases from a template of theirs."""
    from tests.testbed import postgres

    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres.running())
        except PartMissing as reason:
            missing("postgres", reason)
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The SQLAlchemy URL of a fresh, empty PostgreSQL database."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The SQLAlchemy URL of a fresh, empty database: the test runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite"
    return request.getfixturevalue("postgres_url")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A Docker engine that answers: ``host`` is its endpoint, ``client`` a docker-py client."""
    from tests.testbed import docker_engine

    try:
        engine = docker_engine.acquire()
    except PartMissing as reason:
        missing("docker", reason)
    try:
        yield engine
    finally:
        engine.release()


@pytest.fixture(scope="session")
def session_image(docker_engine: DockerEngine) -> str:
    """The name of the session image of this working tree, in the engine of `docker_engine`."""
    from tests.testbed import images

    try:
        return images.session_image(docker_engine)
    except PartMissing as reason:
        missing("docker", reason)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium with a fresh profile, through Playwright's async interface."""
    from tests.testbed import chromium

    async with AsyncExitStack() as stack:
        try:
            launched = await stack.enter_async_context(chromium.launched())
        except PartMissing as reason:
            missing("browser", reason)
        yield launched
