"""One demo for all tests of a run that only use it; those that break things start their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.engines import remove_made_since
from tests.hub import RunningHub

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine

SHARED: set[RunningHub] = set()
# When the phase of a test began that has failed.
FAILED_SINCE = pytest.StashKey[datetime]()

# Tests have clients with other addresses than this machine's.
LISTENS_EVERYWHERE = """
import os
c.JupyterHub.bind_url = f"http://:{os.environ['BAI_PORT']}"
"""


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """The demo on the process engine; tests leave no sessions of theirs behind."""
    yield from _shared(RunningHub(tmp_path_factory.mktemp("hub")))


def _shared(running: RunningHub) -> Iterator[RunningHub]:
    try:
        SHARED.add(running.start())
        yield running
    finally:
        SHARED.discard(running)
        running.stop()


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[Callable[..., RunningHub]]:
    """Make a demo for one test: ``own_hub(engine="docker", environment={…})``; call `start`."""
    made: list[RunningHub] = []

    def make(**options: Any) -> RunningHub:
        made.append(RunningHub(tmp_path / f"home-{len(made)}", **options))
        return made[-1]

    yield make
    for running in made:
        running.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the logs of the demo beside a test that failed with it, and tidy up behind that test."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's
    if report.when == "teardown":
        if since := item.stash.get(FAILED_SINCE, None):
            del item.stash[FAILED_SINCE]
            report.sections += _tidied(since)
    elif report.failed:
        item.stash[FAILED_SINCE] = datetime.fromtimestamp(call.start, UTC)
    if report.when == "call" and report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, RunningHub):
                report.sections.append(("logs of the demo", value.logs()))


def _tidied(since: datetime) -> list[tuple[str, str]]:
    """Remove what a failed test left, for its second try and for others; tell what could not be.

    Its names are taken otherwise, and a machine of two cores has no room for more.
    """
    problems = []
    for running in SHARED:
        try:
            with running.rest("admin") as rest:
                remove_made_since(rest, since)
        except (AssertionError, httpx.HTTPError) as error:
            # Raised in a hook it would end the whole run.
            problems.append(("left by a failed test", str(error)))
    return problems


@pytest.fixture(scope="session")
def docker_hub(
    docker_engine: DockerEngine, session_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningHub]:
    """The demo on the docker engine, with the session image of this working tree."""
    home = tmp_path_factory.mktemp("docker-hub")
    further = home / "further.py"
    further.write_text(LISTENS_EVERYWHERE)
    environment = {"DOCKER_HOST": docker_engine.host, "BAI_IMAGE": session_image}
    environment["BAI_CONFIG"] = str(further)
    yield from _shared(RunningHub(home, engine="docker", environment=environment))


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def any_hub(request: pytest.FixtureRequest) -> RunningHub:
    """The demo on each engine in turn."""
    name = {"process": "hub", "docker": "docker_hub"}[request.param]
    found: RunningHub = request.getfixturevalue(name)
    return found
