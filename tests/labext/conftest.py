"""Fixture: a session's Jupyter server, with the fast path on and off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bai_labext.fast_path import ENABLED_VARIABLE
from tests.testbed.jupyter import JupyterServer
from tests.testbed.session_server import session_server


@pytest.fixture(scope="session", params=["on", "off"], ids=["fast-path-on", "fast-path-off"])
def fast_path(request: pytest.FixtureRequest) -> str:
    """Whether the fast path of `server` is enabled: ``on`` or ``off``."""
    switch: str = request.param
    return switch


@pytest.fixture(scope="session")
def server(fast_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    home = tmp_path_factory.mktemp("home")
    with session_server(home, {ENABLED_VARIABLE: fast_path}) as started:
        yield started
