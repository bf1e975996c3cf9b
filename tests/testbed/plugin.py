"""The pytest plugin of this test suite: real components, databases, managers and HTTP servers.

A test whose component is missing is skipped. With ``BAI_REQUIRE=docker,postgres,browser,btrfs``
it fails instead: CI cannot pass without these components.

Tests with a database run on SQLite. Two groups also run on PostgreSQL: tests that are marked
``both_databases`` (races, lists, permissions), and tests in ``tests/db`` that are not marked
``sqlite_only``.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import pytest_asyncio
from httpx._transports import default

from bai_services.client import Client
from bai_services.db import schema
from bai_services.manager.manager import Manager
from tests.testbed import ComponentMissing, compiled_statements
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import (
    Api,
    MovableClock,
    World,
    create_demo,
    known_world,
    manager_on,
    serving,
    sqlite_copy,
)
from tests.testbed.skip import skip_or_fail
from tests.testbed.work_units import UNIT_OF_FILE, UNIT_OF_FIXTURE, WorkUnits

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from xdist.remote import Producer

    from tests.testbed.chromium import SharedBrowser
    from tests.testbed.docker_engine import DockerEngine
    from tests.testbed.postgres import Postgres

# Cache the TLS context: otherwise each new client loads the root certificates, which takes 25 ms.
default.create_ssl_context = functools.cache(default.create_ssl_context)  # type: ignore[attr-defined]  # private

# Enabled in `pytest_collection_finish`: imports and the collection create hardly any garbage.
gc.disable()

compiled_statements.install()

# As in bai_services/run_hub.py: otherwise each worker would build a grammar when it imports
# JupyterHub, which takes 1.5 s of CPU time. None makes Python treat the module as not installed.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# No deadline for an example: on a busy machine, an example may exceed any deadline.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

TESTS = Path(__file__).resolve().parents[1]
DATABASE_ENGINES = ["sqlite", "postgres"]
# Each test that uses one of these fixtures gets a marker, so that `-m "not docker"` deselects the
# tests with Docker.
MARKER_OF_FIXTURE = {
    "docker_engine": "docker",
    "session_image": "docker",
    "runtime_image": "docker",
    "postgres_url": "postgres",
    "postgres_server": "postgres",
    "browser": "browser",
}
FIXTURE_OF_MARKER = {"docker": "docker_engine", "postgres": "postgres_server"}
BUILD_TIMEOUT_SECONDS = 1200
# Files that take more than 20 s on two cores, the longest first; those in ``tests/e2e``, which run
# separately, are at the end. With --no-loadscope-reorder, the workers begin with these files, which
# shortens the whole run.
LONGEST_FIRST = (
    "labext/test_images.py",
    "spawner/test_spawner.py",
    "agent/test_docker_agent.py",
    "core/queue/test_reservations.py",
    "api/test_fuzz.py",
    "storage/test_trees.py",
    "core/estimates/test_estimate_properties.py",
    "api/test_permissions.py",
    "api/test_role_ranks.py",
    "api/serving/test_endpoints.py",
    "core/test_hostile_input.py",
    "manager/test_idle_judging.py",
    "core/queue/test_reservation_properties.py",
    "manager/test_standby.py",
    "agent/test_subpaths.py",
    "labext/test_panel_api.py",
    "manager/test_hub.py",
    "storage/test_archives.py",
    "db/test_vfolders.py",
    "db/test_queue_kills.py",
    "manager/test_account_races.py",
    "cli/test_try_policy.py",
    "labext/test_app_proxy.py",
    "api/folders/test_path_attacks.py",
    "api/test_lists.py",
    "spawner/test_swarm.py",
    "test_demo.py",
    "api/folders/test_upload_kill.py",
    "api/folders/test_files.py",
    "db/test_sessions.py",
    "db/test_session_machine.py",
    "spawner/test_docker_engine.py",
    "db/test_schema.py",
    "test_first_admin.py",
    "core/queue/test_properties.py",
    "core/replay/test_recorded_properties.py",
    "e2e/test_cluster_sessions.py",
    "e2e/webui/test_launcher.py",
    "e2e/test_labext.py",
    "e2e/test_faults.py",
    "e2e/test_run.py",
    "e2e/webui/test_languages.py",
    "e2e/test_isolation.py",
    "e2e/test_openid.py",
    "e2e/test_one_time_codes.py",
    "e2e/test_ssh.py",
    "e2e/test_journey_rest.py",
    "e2e/test_labext_consent.py",
    "e2e/test_journey_cli.py",
    "e2e/test_sign_outs.py",
    "e2e/webui/test_data_page.py",
    "e2e/test_sign_in.py",
    "e2e/webui/test_session_list.py",
    "e2e/test_journey_browser.py",
    "e2e/test_remote_cli.py",
    "e2e/webui/test_sessions_page.py",
    "e2e/webui/test_every_page.py",
    "e2e/test_queue.py",
    "e2e/test_start_form.py",
    "e2e/webui/test_session_drawer.py",
    "e2e/test_tunnel.py",
    "e2e/test_hub_pages.py",
    "e2e/webui/test_connection.py",
    "e2e/webui/test_main_flow.py",
    "e2e/webui/test_scale.py",
    "e2e/webui/test_accounts_page.py",
    "e2e/webui/test_administration.py",
    "e2e/webui/test_scheduler_page.py",
    "e2e/test_account_changes.py",
    "e2e/webui/test_start_page.py",
    "e2e/test_app_shares.py",
    "e2e/webui/test_dashboard.py",
    "e2e/test_labext_limits.py",
    "e2e/test_hub_roles.py",
    "e2e/webui/test_shell.py",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on both databases if its folder or its marker requires it."""
    if "database_engine" not in metafunc.fixturenames:
        return
    definition = metafunc.definition
    is_for_both = definition.get_closest_marker("both_databases") or (
        TESTS / "db" in definition.path.parents and not definition.get_closest_marker("sqlite_only")
    )
    if is_for_both:
        metafunc.parametrize("database_engine", DATABASE_ENGINES, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        markers = {MARKER_OF_FIXTURE[name] for name in names & MARKER_OF_FIXTURE.keys()}
        callspec = getattr(item, "callspec", None)
        if callspec is not None and callspec.params.get("database_engine") == "postgres":
            markers.add("postgres")
        for marker in markers:
            item.add_marker(marker)
        for fixture in names & UNIT_OF_FIXTURE.keys():
            unit = UNIT_OF_FIXTURE[fixture]
            if UNIT_OF_FILE.get(_path(item)) != unit:
                raise pytest.UsageError(f"add {_path(item)} to the files of {unit} in UNITS")
        if "browser" in names:
            # The tests of a worker share one Chromium, which belongs to one event loop.
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        # The first test that uses the session image waits until the image is built.
        may_build = item.get_closest_marker("docker") or item.get_closest_marker("e2e")
        if may_build and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT_SECONDS))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the imported modules and the collected tests from all garbage collections.

    Otherwise each full collection would take 0.2 s.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def _path(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkUnits:
    return WorkUnits(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the failures of tests that have been run again."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"RERUN {report.nodeid}", sep="-")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(autouse=True)
def _components_of_markers(request: pytest.FixtureRequest) -> None:
    """Require the component of a marker even if the test does not use the component's fixture."""
    for marker, fixture in FIXTURE_OF_MARKER.items():
        if request.node.get_closest_marker(marker) and fixture not in request.fixturenames:
            request.getfixturevalue(fixture)


# --- real components


@pytest.fixture
def refused_sockets() -> Iterator[None]:
    """Ignore the unclosed sockets that docker-py leaks after refused connections."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A running Docker engine: ``host`` is its endpoint, ``client`` a docker-py client."""
    from tests.testbed import docker_engine

    try:
        engine = docker_engine.acquire()
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
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
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)


@pytest.fixture(scope="session")
def runtime_image(docker_engine: DockerEngine) -> str:
    """The name of the runtime image of this working tree, in the engine of `docker_engine`."""
    from tests.testbed import images

    try:
        return images.runtime_image(docker_engine)
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_browser() -> AsyncIterator[SharedBrowser]:
    """The Chromium of all tests of a worker."""
    from tests.testbed import chromium

    async with aclosing(chromium.SharedBrowser()) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
async def browser(shared_browser: SharedBrowser) -> AsyncIterator[Browser]:
    """A headless Chromium, through Playwright's async interface.

    At the end of the test, its pages are closed, and so are the browser contexts that were not
    created with `SharedBrowser.profile`.
    """
    try:
        launched = await shared_browser.get()
    except ComponentMissing as reason:
        skip_or_fail("browser", reason)
    yield launched
    await shared_browser.close_pages()


# --- databases


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The PostgreSQL server of all tests of a worker."""
    from tests.testbed import postgres

    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres.running())
        except ComponentMissing as reason:
            skip_or_fail("postgres", reason)
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The SQLAlchemy URL of a new PostgreSQL database without tables."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def database_engine(request: pytest.FixtureRequest) -> str:
    """``sqlite``, or each of `DATABASE_ENGINES` in turn (see `pytest_generate_tests`)."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def empty_database_url(request: pytest.FixtureRequest, database_engine: str, tmp_path: Path) -> str:
    """The SQLAlchemy URL of a new database without tables."""
    if database_engine == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite"
    return str(request.getfixturevalue("postgres_url"))


# Tests copy these databases in 20 ms; migrating one or creating the demo data takes seconds.


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "bai.sqlite"
    schema.upgrade(f"sqlite+aiosqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Postgres) -> str:
    name = postgres_server.create_database()
    schema.upgrade(postgres_server.url(name))
    return name


@pytest.fixture(scope="session")
def demo_sqlite(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    asyncio.run(create_demo(sqlite_copy(migrated_sqlite, folder), folder))
    return folder / "bai.sqlite"


@pytest.fixture(scope="session")
def demo_postgres(
    postgres_server: Postgres, migrated_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    name = postgres_server.create_database(migrated_postgres)
    asyncio.run(create_demo(postgres_server.url(name), tmp_path_factory.mktemp("demo")))
    return name


@pytest.fixture
def migrated_database_url(
    request: pytest.FixtureRequest, database_engine: str, tmp_path: Path
) -> Iterator[str]:
    """The SQLAlchemy URL of a new database with all tables and no rows."""
    yield from _copied(request, "migrated", database_engine, tmp_path)


@pytest.fixture
def demo_database_url(
    request: pytest.FixtureRequest, database_engine: str, tmp_path: Path
) -> Iterator[str]:
    """The SQLAlchemy URL of a new database with the demo data; see `known_world`."""
    yield from _copied(request, "demo", database_engine, tmp_path)


def _copied(
    request: pytest.FixtureRequest, stage: str, database_engine: str, folder: Path
) -> Iterator[str]:
    template = request.getfixturevalue(f"{stage}_{database_engine}")
    if database_engine == "sqlite":
        yield sqlite_copy(template, folder)
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    with server.database(template) as url:
        yield url


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, database_engine: str, tmp_path: Path
) -> Iterator[str]:
    """The URL of the database of `manager`.

    The database has the demo data if the test uses `world`, and no rows otherwise.
    """
    stage = "demo" if "world" in request.fixturenames else "migrated"
    yield from _copied(request, stage, database_engine, tmp_path)


# --- the manager and its HTTP server


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    """A manager whose loops run only if the test starts them."""
    async with manager_on(database_url, tmp_path, clock, is_migrated=True) as made:
        yield made


@pytest.fixture
async def world(manager: Manager, clock: MovableClock) -> World:
    """The `manager`, with the demo data."""
    return await known_world(manager, clock)


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    """The HTTP server of `world`, with clients: ``await api.client("user")``, ``api.hub``, …"""
    async with serving(world) as served:
        yield served


@pytest.fixture
async def agent(api: Api) -> AsyncIterator[FakeAgent]:
    """A fake agent that has sent a heartbeat; the manager's loops run."""
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    await api.world.manager.start()
    yield fake_agent
    await api.world.manager.stop_session_loops()
    assert await api.world.manager.sessions.records.check_consistency() == []


@pytest.fixture
async def user(api: Api) -> Client:
    return await api.client("user")
