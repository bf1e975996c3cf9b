"""Commands that create, list, show, update and delete the entities of a kind."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import click

from bai_services.core.cluster import group_options
from bai_services.core.counts import with_article

from .. import output, units
from ..cluster.agents import with_formatted_capacity
from ..command import (
    Choice,
    CommandGroup,
    Connection,
    connected,
    example,
    page_options,
    parse_pairs,
    segment,
)
from .entities import AGENT, PROVISIONED_MACHINE, USER, Entity
from .fields import Field, FieldKind, validate_value

NONE = "none"
NO_LIMIT = "no limit"
_EMPTY: Mapping[FieldKind, Any] = {
    FieldKind.SLOTS: {},
    FieldKind.CAPS: {},
    FieldKind.LIST: [],
    FieldKind.NUMBERS: [],
    FieldKind.HOSTS: {},
    FieldKind.MAP: {},
    FieldKind.OPTIONS: {},
}


class _Number(click.ParamType[Any]):
    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == NONE or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)


class _Map(click.ParamType[Any]):
    name = "JSON"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == NONE or isinstance(value, dict):
            return value
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            self.fail(f"{value!r} is not a JSON object", param, ctx)
        return parsed


def option_of(field: Field, *, is_required: bool = False) -> click.Option:
    """Return the click option of a field; its value is None or () if the user does not give it."""
    name, text = f"--{field.option}", field.help
    if field.is_nullable:
        text += f" '{NONE}' clears the value."
    settings: dict[str, Any] = {"metavar": "TEXT"}
    match field.kind:
        case FieldKind.FLAG:
            name, settings = f"{name}/--no-{field.option}", {"default": None}
        case FieldKind.NUMBER:
            settings = {"metavar": "NUMBER", "type": _Number()}
        case FieldKind.DECIMAL:
            settings = {"metavar": "AMOUNT"}
        case FieldKind.MAP | FieldKind.OPTIONS | FieldKind.HOSTS:
            settings = {"metavar": "JSON", "type": _Map()}
        case FieldKind.SLOTS | FieldKind.CAPS:
            settings = {"metavar": "SLOT=AMOUNT", "multiple": True}
        case FieldKind.LIST:
            settings = {"metavar": "VALUE", "multiple": True}
        case FieldKind.NUMBERS:
            settings = {"metavar": "NUMBER", "multiple": True, "type": _Number()}
    if field.choices:
        del settings["metavar"]
        cleared = (NONE,) if field.is_nullable else ()
        settings["type"] = Choice((*field.choices, *cleared), case_sensitive=False)
    if settings.get("multiple"):
        text += " May be repeated."
    return click.Option([name, field.name], help=text, required=is_required, **settings)


def body_from_options(entity: Entity, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request body for the values of the options."""
    body: dict[str, Any] = {}
    for field in entity.fields:
        value = given.get(field.name)
        if value is None or value == ():
            continue
        if value in (NONE, (NONE,)):
            value = None if field.is_nullable else _EMPTY.get(field.kind, value)
        elif field.kind in (FieldKind.SLOTS, FieldKind.CAPS):
            value = parse_pairs(value, f"--{field.option}", f"--{field.option} cpu=4")
        body[field.name] = validate_value(field, value)
    return body


def _with_texts(entity: Entity, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object for display: with "no limit" for values that mean this, with its currency,
    and with labels as field names.
    """
    texts = {
        field.name: NO_LIMIT
        for field in entity.fields
        if field.name in item and item[field.name] in field.unlimited
    }
    shown = {**units.with_currency(item, entity.money), **texts}
    labels = dict(entity.labels)
    return {labels.get(name, name): value for name, value in shown.items()}


def _print_item(entity: Entity, item: Mapping[str, Any], *, as_json: bool) -> None:
    output.print_fields(item if as_json else _with_texts(entity, item), as_json=as_json)


Handler = Callable[..., Awaitable[None]]


def _command(
    entity: Entity,
    name: str,
    handler: Handler,
    text: str,
    parameters: Iterable[click.Parameter],
    *example_words: str,
) -> click.Command:
    """Return a command; its help shows an example with the arguments ``example_words``."""
    as_json = click.Option(
        ["--json", "as_json"], is_flag=True, help="Print exactly one JSON document."
    )
    words = ("bai admin", entity.command, name, *filter(None, example_words))
    return click.Command(
        name,
        callback=connected(handler),
        help=text,
        params=[*parameters, as_json],
        epilog=example(" ".join(words)),
    )


def _key_argument(entity: Entity) -> click.Argument:
    return click.Argument(["key"], metavar=entity.key.upper())


def _password_option(entity: Entity) -> list[click.Parameter]:
    if entity is not USER:
        return []
    text = "Read the password from standard input."
    return [click.Option(["--password-stdin"], is_flag=True, help=text)]


def _body_with_password(entity: Entity, given: Mapping[str, Any]) -> dict[str, Any]:
    body = body_from_options(entity, given)
    if given.get("password_stdin"):
        body["password"] = sys.stdin.readline().rstrip("\r\n")
    return body


def _create(entity: Entity) -> click.Command:
    async def create(connection: Connection, *, as_json: bool, **given: Any) -> None:
        body = _body_with_password(entity, given)
        if not entity.has_generated_key:
            body[entity.key] = given["key"]
        created = await connection.client.post(entity.path, body)
        _print_item(entity, created, as_json=as_json)

    options = [
        option_of(field, is_required=field.is_required)
        for field in entity.fields
        if not field.is_update_only
    ]
    keys = [] if entity.has_generated_key else [_key_argument(entity)]
    return _command(
        entity,
        "create",
        create,
        f"Create {with_article(entity.noun)}.",
        [*keys, *options, *_password_option(entity)],
        *([] if entity.has_generated_key else [entity.example_key]),
        entity.example_create,
    )


def _list(entity: Entity) -> click.Command:
    async def list_(
        connection: Connection, *, filters: tuple[str, ...], as_json: bool, **query: Any
    ) -> None:
        query = {key: value for key, value in query.items() if value is not None}
        query |= parse_pairs(filters, "--filter", "--filter name__contains=lab")
        page = await connection.client.get(entity.path, **query)
        if entity is AGENT and not as_json:
            page["items"] = [with_formatted_capacity(agent) for agent in page["items"]]
        if not as_json:
            page["items"] = [_with_texts(entity, item) for item in page["items"]]
        empty = f"no {entity.noun} matches" if filters else _creation_hint(entity)
        output.print_page(page, entity.columns, as_json=as_json, empty=empty)

    filter_option = click.Option(
        ["--filter", "filters"],
        multiple=True,
        metavar="FIELD=VALUE",
        help="List only objects whose FIELD has this VALUE. Append __contains, __in, __gte, __lte, "
        "__gt, __lt or __ne to FIELD for another comparison. May be repeated.",
    )
    command = _command(
        entity, "list", list_, f"List {entity.plural}.", [filter_option], "--limit 20"
    )
    return page_options(command)


def _creation_hint(entity: Entity) -> str:
    """Return the hint for an empty list of entities."""
    if entity is PROVISIONED_MACHINE:
        return f"no {entity.plural} yet; the manager starts them when sessions need them"
    if not entity.can_create:
        return f"no {entity.plural} yet; an agent appears here when it connects to the manager"
    return f"no {entity.plural} yet; see: bai admin {entity.command} create --help"


def _show(entity: Entity) -> click.Command:
    async def show(connection: Connection, key: str, *, as_json: bool) -> None:
        item = await connection.client.get(f"{entity.path}/{segment(key)}")
        _print_item(entity, item, as_json=as_json)

    text = f"Show {with_article(entity.noun)}."
    return _command(entity, "show", show, text, [_key_argument(entity)], entity.example_key)


def _update(entity: Entity) -> click.Command:
    async def update(connection: Connection, key: str, *, as_json: bool, **given: Any) -> None:
        body = _body_with_password(entity, given)
        if not body:
            raise click.UsageError("no field to change; --help lists the options")
        options = given.get(group_options.FIELD)
        if isinstance(options, Mapping):
            del body[group_options.FIELD]
            body[group_options.CHANGES_FIELD] = options
        changed = await connection.client.patch(f"{entity.path}/{segment(key)}", body)
        _print_item(entity, changed, as_json=as_json)

    options = [option_of(field) for field in entity.fields if not field.is_immutable]
    return _command(
        entity,
        "update",
        update,
        f"Change the given fields of {with_article(entity.noun)}.",
        [_key_argument(entity), *options, *_password_option(entity)],
        entity.example_key,
        entity.example_update,
    )


def _delete(entity: Entity) -> click.Command:
    async def delete(connection: Connection, key: str, *, as_json: bool) -> None:
        await connection.client.delete(f"{entity.path}/{segment(key)}")
        done = {"deleted": key}
        output.print_done(f"{entity.noun} {key} deleted", done, as_json=as_json)

    text = f"Delete {with_article(entity.noun)}."
    if entity is PROVISIONED_MACHINE:
        text = "Stop a machine as soon as it has no sessions; it gets no new ones."
    return _command(entity, "delete", delete, text, [_key_argument(entity)], entity.example_key)


def entity_group(entity: Entity) -> click.Group:
    group = CommandGroup(entity.command, help=entity.summary)
    factories = [_list, _show, _delete]
    if entity.fields:
        factories.append(_update)
    if entity.can_create:
        factories.append(_create)
    for command_of in factories:
        group.add_command(command_of(entity))
    return group
