"""Building blocks of commands that call the manager: connection, shared options, arguments."""

from __future__ import annotations

import asyncio
import difflib
import functools
from collections.abc import Awaitable, Callable, Iterable
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

verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show every field.")


def example(*lines: str) -> str:
    """Return the end of a command's help: examples, one for each line."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    # click neither wraps nor joins the lines after \b.
    return "\n".join(("\b", title, *(f"  {line}" for line in lines)))


class Choice(click.Choice[str]):
    """A choice among words that suggests the closest one for a typo."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return message + did_you_mean(str(value), self.choices)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known words closest to a typo; empty if none is."""
    by_lower = {one.lower(): str(one) for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower)
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in close)}?" if close else ""


@dataclass(frozen=True, slots=True)
class Connection:
    """The hub that a command works with, and a client that is signed in there."""

    profile: profile.Profile
    client: Client

    def address(self, path: str) -> str:
        """Return the full URL of a path in an answer of the manager, such as a session's page."""
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
    """Return ``name`` percent-encoded as one segment of a URL path.

    Raises
    ------
    InvalidRequest
        If it is empty: the path would be that of the list.
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
            raise InvalidRequest(f"{option} {text!r} is not KEY=VALUE; for example {example}")
        if key in found:
            raise InvalidRequest(f"{option} names {key!r} twice")
        found[key] = value
    return found
