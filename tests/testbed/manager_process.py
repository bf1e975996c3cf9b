"""A manager in a separate process that runs until it is killed, without a web server.

The manager's token for the Hub is the name of its home folder.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from bai_services.db.database import Database
from bai_services.manager.manager import Manager

from .manager import settings


async def _run(database_url: str, home: Path, lease_seconds: float, hub_url: str) -> None:
    hub = {"hub_api_url": hub_url, "hub_api_token": home.name} if hub_url else {}
    chosen = settings(database_url, home, lease_seconds=lease_seconds, **hub)
    manager = Manager(chosen, Database(database_url))
    await manager.start()
    await asyncio.Event().wait()


def run(database_url: str, home: Path, lease_seconds: float, hub_url: str) -> None:
    logging.basicConfig(level=logging.INFO)
    asyncio.run(_run(database_url, home, lease_seconds, hub_url))
