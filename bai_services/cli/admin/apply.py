"""`bai apply`: create and update the objects that a YAML file declares."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from bai_services.client import Client
from bai_services.core.accounts.passwords import broken_rules
from bai_services.core.errors import BaiError

from .. import output
from ..command import Connection, connected, example, json_option, segment
from ..text import printable
from . import difference
from .declaration import SECTIONS, Item, PasswordSource, load_declaration
from .difference import Change
from .entities import IMAGE, IMAGE_ALIAS, PROJECT, RESOURCE_GROUP, USER, Entity
from .weight_names import with_names

_MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


@dataclass(slots=True)
class Outcome:
    """The changes that were made or, in a dry run, would be made, and the generated passwords."""

    is_applied: bool
    changes: list[Change] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict, repr=False)

    def document(self) -> dict[str, Any]:
        """Return the JSON document that ``--json`` prints."""
        return {
            "applied": self.is_applied,
            "changes": [change.document() for change in self.changes],
            "passwords": self.passwords,
        }


@click.command(epilog=example("bai apply -f hub.yaml --dry-run", "bai apply -f hub.yaml"))
@click.option(
    "-f",
    "--file",
    "path",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with domains, projects, users, policies and so on.",
)
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@click.option(
    "--prune",
    is_flag=True,
    help="Delete every object that is missing from its section, and every member, link or alias "
    "that is missing from its list. Sections and lists that are not in the file are not changed, "
    "and your own account is never deleted.",
)
@json_option
@connected
async def apply(
    connection: Connection, path: Path, *, dry_run: bool, prune: bool, as_json: bool
) -> None:
    """Create and update the objects that a YAML file declares.

    The command is idempotent: a second run changes nothing. It deletes objects only with
    --prune. The whole file is validated before the first change. If the hub rejects a
    change, earlier changes remain: correct the file and apply it again.
    """
    declared = load_declaration(path)
    me = await connection.client.get("/me")
    outcome = Outcome(is_applied=not dry_run)
    try:
        async for change in changes_of(connection.client, declared, me["username"], prunes=prune):
            if not dry_run:
                await _apply_change(connection.client, change, outcome)
            outcome.changes.append(change)
            if not as_json:
                print_change(change)
    except BaiError as error:
        # Earlier changes remain, so print the passwords that were generated for them.
        if as_json:
            error.details = {**error.details, **outcome.document()}
        else:
            _print_passwords(outcome)
        raise
    if as_json:
        output.print_json(outcome.document())
    else:
        _print_passwords(outcome)
        print(_summary(outcome))


async def changes_of(
    client: Client, declared: Mapping[str, Sequence[Item]], myself: str, *, prunes: bool
) -> AsyncIterator[Change]:
    """Yield the changes in dependency order; deletions of objects come last.

    Except in a dry run, the caller makes each change before it requests the next. Each section is
    therefore compared with the result of the earlier changes. This is necessary because a change
    can affect other sections: for example, a new domain creates a project.
    """
    rows: dict[str, Sequence[Mapping[str, Any]]] = {}
    for entity in SECTIONS:
        if entity.section not in declared:
            continue
        items, found = declared[entity.section], await _rows(client, entity)
        if entity is RESOURCE_GROUP:
            items, found = await with_names(client, items, found)
        rows[entity.section] = found
        for change in difference.section_changes(entity, items, found):
            yield change
        if entity is IMAGE:
            # Projects, a later section, may have an alias as default image.
            for change in await _alias_changes(client, items, prunes=False):
                yield change
    async for change in _relation_changes(client, declared, prunes=prunes):
        yield change
    for entity in reversed(SECTIONS) if prunes else ():
        if entity.section in declared:
            keep = {myself} if entity is USER else set[str]()
            for change in difference.deletions(
                entity, declared[entity.section], rows[entity.section], keep
            ):
                yield change


async def _relation_changes(
    client: Client, declared: Mapping[str, Sequence[Item]], *, prunes: bool
) -> AsyncIterator[Change]:
    if prunes:
        for change in await _alias_changes(client, declared.get(IMAGE.section, ()), prunes=True):
            if change.action == "delete":
                yield change
    projects = [item for item in declared.get(PROJECT.section, ()) if "members" in item.extras]
    ids = {}
    if projects:
        ids = {(row["domain"], row["name"]): row["id"] for row in await _rows(client, PROJECT)}
    for item in projects:
        project_id = ids.get((item.scope, item.key))
        path = f"{PROJECT.path}/{project_id}/members"
        members = [m["username"] async for m in client.items(path)] if project_id else []
        for change in difference.member_changes(item, project_id, members, prunes=prunes):
            yield change
    groups = [item for item in declared.get(RESOURCE_GROUP.section, ()) if "links" in item.extras]
    known = {row["name"] for row in await _rows(client, RESOURCE_GROUP)} if groups else set()
    for item in groups:
        path = f"{RESOURCE_GROUP.path}/{segment(item.key)}/links"
        links = [row async for row in client.items(path)] if item.key in known else []
        current = [f"{row['kind']}/{segment(row['name'])}" for row in links]
        for change in difference.link_changes(item, current, prunes=prunes):
            yield change


async def _alias_changes(client: Client, items: Sequence[Item], *, prunes: bool) -> list[Change]:
    images = [item for item in items if "aliases" in item.extras]
    if not images:
        return []
    aliases = {row["alias"]: row["image"] for row in await _rows(client, IMAGE_ALIAS)}
    changes = [difference.alias_changes(item, aliases, prunes=prunes) for item in images]
    return list(chain.from_iterable(changes))


async def _rows(client: Client, entity: Entity) -> Sequence[Mapping[str, Any]]:
    return [row async for row in client.items(entity.path, sort=entity.key)]


async def _apply_change(client: Client, change: Change, outcome: Outcome) -> None:
    body = change.body
    if change.password is not None:
        password = change.password
        if password is PasswordSource.GENERATED:
            password = _new_password(body["username"], body["email"])
        body = {**body, "password": password}
    await client.call(change.method, change.path, body=body)
    if change.password is PasswordSource.GENERATED:
        outcome.passwords[change.name] = body["password"]


def print_change(change: Change) -> None:
    """Print a change and its fields in the color of its action."""
    mark, color = _MARKS[change.action]
    lines = [f"{mark} {change.kind} {printable(change.name)}"]
    for name, (before, after) in change.fields.items():
        values = [output.cell(value) for value in (before, after)]
        text = values[1] if change.action == "create" else " → ".join(values)
        lines.append(f"    {name}: {text}")
    # rich, unlike click, honors NO_COLOR.
    output.console().print(Text("\n".join(lines), style=color), soft_wrap=True)


def _print_passwords(outcome: Outcome) -> None:
    for name, password in outcome.passwords.items():
        print(f"initial password of {printable(name)}: {password}")


def _summary(outcome: Outcome) -> str:
    done = {"create": "created", "update": "updated", "delete": "deleted"}
    counts = [
        f"{count} {done[action] if outcome.is_applied else f'to {action}'}"
        for action in _MARKS
        if (count := sum(change.action == action for change in outcome.changes))
    ]
    return ", ".join(counts) or "nothing to change"


def _new_password(username: str, email: str) -> str:
    """Return a random password of about 120 bits that satisfies the password rules."""
    while True:
        password = "-".join(secrets.token_urlsafe(5) for _ in range(3))
        if not broken_rules(password, username, email):
            return password
