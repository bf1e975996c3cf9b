"""Additions to the launch of a session that is a replica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ReplicaLaunch(Protocol):
    """Interface that ``manager/serving/replica_launch.py`` implements."""

    async def environ(self, session_id: str) -> Mapping[str, str]:
        """Return the environment variables for the runner of a replica."""
        ...

    async def started(self, session_id: str, url: str) -> None:
        """Record the URL at which the runner of a replica listens."""
        ...
