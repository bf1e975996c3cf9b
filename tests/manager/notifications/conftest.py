"""A manager with demo data, a real mail server, and a local receiver of webhook calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.settings import MailServer
from tests.testbed.mail_server import MailServerThread, serving_mail
from tests.testbed.manager import MovableClock, World, known_world, manager_on
from tests.testbed.receiver import Receiver, serve_receiver

LOCAL_NETWORK = AllowedTargets.parse("", "127.0.0.1/32")
ORIGIN = "https://hub.example.org"


@pytest.fixture
def mail_server() -> Iterator[MailServerThread]:
    with serving_mail() as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serve_receiver() as made:
        yield made


@pytest.fixture
async def world(
    database_url: str, tmp_path: Path, clock: MovableClock, mail_server: MailServerThread
) -> AsyncIterator[World]:
    options = {
        "callback_targets": LOCAL_NETWORK,
        "public_origin": ORIGIN,
        "mail": MailServer("127.0.0.1", mail_server.port, "none", "hub@example.org"),
    }
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **options) as manager:
        yield await known_world(manager, clock)
