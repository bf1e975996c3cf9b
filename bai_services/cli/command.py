"""Building blocks of commands: connection to the manager, shared options, argument parsing."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import click

from bai_services.client import Client
from bai_services.core.errors import BaiError, InvalidRequest, NotFound

from . import announcement_notice, profile

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print exactly one JSON document."
)

# Optional word ``list`` of commands that only list, as in command groups.
ls_argument = click.argument(
    "ls", required=False, metavar="[ls]", type=click.Choice(["ls", "list"]), expose_value=False
)

verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show all non-empty fields.")


# Maximum number of sessions, the newest first, that are searched for a similar name.
_MAX_COMPARED_NAMES = 200

_Command = TypeVar("_Command", bound=Callable[..., Any])
_limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Maximum number of entries.",
)
_offset_option = click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of entries to skip.",
)
_sort_option = click.option(
    "--sort", metavar="FIELD[,…]", help="Sort by these fields; the prefix - means descending order."
)


class CommandGroup(click.Group):
    """A command group in which ``ls`` and ``list`` are the same command, also in its subgroups."""

    group_class = type

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = (cmd_name, {"ls": "list", "list": "ls"}.get(cmd_name, cmd_name))
        found = (super(CommandGroup, self).get_command(ctx, name) for name in names)
        return next((command for command in found if command is not None), None)


def command_group(
    name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], CommandGroup]:
    """Return a decorator that makes a function a ``CommandGroup``."""
    return click.group(name, cls=CommandGroup, **settings)


def with_options(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    """Add options to a command; its help lists them in the given order."""
    for option in reversed(options):
        command = option(command)
    return command


def page_options(command: _Command) -> _Command:
    """Add ``--sort``, ``--limit`` and ``--offset`` to a list command."""
    return _sort_option(_limit_option(_offset_option(command)))


def page_query(sort: str | None, limit: int, offset: int) -> dict[str, Any]:
    """Return the REST API's query parameters for the values of ``page_options``."""
    query: dict[str, Any] = {"limit": limit, "offset": offset}
    return query | ({"sort": sort} if sort else {})


def example(*lines: str) -> str:
    """Return the end of a command's help text: one example per line."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    # With \b, click does not wrap or join the following lines.
    return "\n".join(("\b", title, *(f"  {line}" for line in lines)))


class Choice(click.Choice[str]):
    """A choice between fixed words; the error message suggests similar ones, if any."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return message + did_you_mean(str(value), self.choices)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known words closest to a typo; empty if none is close.

    If no whole word is close, words with a similar part are suggested: ``single-node`` for
    ``singel``.
    """
    by_lower = {one.lower(): str(one) for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower)
    if not close:
        parts = {part for one in by_lower for part in one.split("-")}
        similar = difflib.get_close_matches(word.lower(), parts)
        close = [one for one in by_lower if not set(similar).isdisjoint(one.split("-"))]
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in close)}?" if close else ""


@dataclass(frozen=True, slots=True)
class Connection:
    """Profile of the hub, and a client that is signed in to it."""

    profile: profile.Profile
    client: Client

    def address(self, path: str) -> str:
        """Return the full URL for a URL path that the manager returned.

        The address of a session can be a full URL: its site can have a separate proxy.
        """
        if not path.startswith("/"):
            return path
        scheme, _, rest = self.profile.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}{path}"


def connected(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a command callback that calls ``function`` with a ``Connection`` as first argument."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        current = profile.load()

        async def with_client() -> None:
            async with Client(current.service_url, current.credential) as client:
                try:
                    await function(Connection(current, client), *args, **kwargs)
                    await announcement_notice.show(
                        current, client, is_json=bool(kwargs.get("as_json"))
                    )
                except NotFound as error:
                    error.message += await _similar_sessions(client, error)
                    raise

        asyncio.run(with_client())

    return run


async def _similar_sessions(client: Client, error: NotFound) -> str:
    """Return a sentence that suggests sessions with a name similar to the missing session.

    The result is empty if another object is missing, or if no name is similar.
    """
    name = error.details.get("session")
    if not isinstance(name, str):
        return ""
    # The suggestion is optional: without it, the command fails with the original error.
    with contextlib.suppress(BaiError):
        page = await client.get("/sessions", sort="-created_at", limit=_MAX_COMPARED_NAMES)
        names = {str(item["name"]) for item in page["items"]}
        if suggestion := did_you_mean(name, names - {name}):
            return f".{suggestion}"
    return ""


def segment(name: str) -> str:
    """Return ``name`` percent-encoded as one segment of a URL path.

    Raises
    ------
    InvalidRequest
        If ``name`` is empty: the path would address the whole list.
    """
    if not name:
        raise InvalidRequest("a name must not be empty")
    # A proxy resolves the segments . and .. before the request reaches the manager.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def parse_pairs(texts: tuple[str, ...], option: str, example: str) -> dict[str, str]:
    """Return the values of ``KEY=VALUE`` texts by key.

    ``option`` and ``example`` appear in the error message.

    Raises
    ------
    InvalidRequest
        If a text has no ``=`` or an empty key, or if a key is repeated.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise InvalidRequest(f"{option} {text!r} is not KEY=VALUE; for example {example}")
        if key in found:
            raise InvalidRequest(f"{option}: duplicate key {key!r}")
        found[key] = value
    return found
