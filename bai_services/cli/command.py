"""The frame of a command that speaks to the manager."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest

from . import profile

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print exactly one JSON document."
)


@dataclass(frozen=True, slots=True)
class Connection:
    """What a command works with: the hub in force and a client that is signed in there."""

    profile: profile.Profile
    client: Client

    def address(self, path: str) -> str:
        """Return the full address of a path that the manager names, such as a session's page."""
        scheme, _, rest = self.profile.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}{path}"


def connected(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine function as a command; its first argument is the ``Connection``."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        current = profile.load()

        async def with_client() -> None:
            async with Client(current.service_url, current.credential) as client:
                await function(Connection(current, client), *args, **kwargs)

        asyncio.run(with_client())

    return run


def segment(name: str) -> str:
    """Return ``name`` as one segment of a path, whatever letters it has.

    Raises
    ------
    InvalidRequest
        If it is empty: the path would mean the list.
    """
    if not name:
        raise InvalidRequest("a name must not be empty")
    # A proxy would resolve . and .. before the manager sees them.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def pairs(texts: tuple[str, ...], option: str, example: str) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a map.

    Raises
    ------
    InvalidRequest
        If one has no ``=``, an empty key, or repeats a key.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise InvalidRequest(
                f"{option} {text!r} is not KEY=VALUE; write for instance {example}"
            )
        if key in found:
            raise InvalidRequest(f"{option} names {key!r} twice")
        found[key] = value
    return found
