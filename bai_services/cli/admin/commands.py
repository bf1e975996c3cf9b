"""`bai admin`: a command group for each kind of entity, and other administrative commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import click

from bai_services.core.cluster import group_options
from bai_services.core.counts import with_article

from .. import output
from ..cluster.agents import with_formatted_capacity
from ..command import (
    Choice,
    CommandGroup,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    parse_pairs,
    segment,
)
from ..notifications.webhooks import webhook
from ..operations.diagnostics import diagnostics
from ..usage.reports import admin_endpoint_usage, admin_usage, price
from .audit import audit
from .cluster import cluster, invitations, invite, uninvite
from .config import config
from .entities import AGENT, ENTITIES, PROVISIONED_MACHINE, USER, Entity
from .fields import Field, FieldKind, validate_value
from .idle_checkers import IDLE_CHECKER_COMMANDS
from .image_prunes import image_prune
from .image_pulls import image_pull
from .image_registries import REGISTRY_COMMANDS
from .invitations import invitation
from .mail import mail
from .preemptions import preemptions
from .replay import replay
from .replay_scaling import replay_scaling_command
from .try_policy import try_policy
from .user_purge import purge_users

NONE = "none"
_EMPTY: Mapping[FieldKind, Any] = {
    FieldKind.SLOTS: {},
    FieldKind.CAPS: {},
    FieldKind.LIST: [],
    FieldKind.NUMBERS: [],
    FieldKind.HOSTS: {},
    FieldKind.MAP: {},
    FieldKind.OPTIONS: {},
}


@command_group()
def admin() -> None:
    """Manage domains, users, policies and agents."""


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
        case FieldKind.MAP | FieldKind.OPTIONS | FieldKind.HOSTS:
            settings = {"metavar": "JSON", "type": _Map()}
        case FieldKind.SLOTS | FieldKind.CAPS:
            settings = {"metavar": "SLOT=AMOUNT", "multiple": True}
        case FieldKind.LIST:
            settings = {"metavar": "VALUE", "multiple": True}
        case FieldKind.NUMBERS:
            settings = {"metavar": "NUMBER", "multiple": True, "type": _Number()}
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
        output.print_fields(created, as_json=as_json)

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
        output.print_fields(item, as_json=as_json)

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
        output.print_fields(changed, as_json=as_json)

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


def _entity_group(entity: Entity) -> click.Group:
    group = CommandGroup(entity.command, help=entity.summary)
    factories = [_list, _show, _delete]
    if entity.fields:
        factories.append(_update)
    if entity.can_create:
        factories.append(_create)
    for command_of in factories:
        group.add_command(command_of(entity))
    return group


admin.add_command(replay)
admin.add_command(replay_scaling_command, "replay-scaling")
admin.add_command(admin_usage)
admin.add_command(admin_endpoint_usage)
admin.add_command(price)
for _entity in (*ENTITIES, PROVISIONED_MACHINE):
    _command_group = _entity_group(_entity)
    admin.add_command(_command_group)
    if _entity.alias:
        admin.add_command(_command_group, _entity.alias)


for _command_of_checkers in IDLE_CHECKER_COMMANDS:
    _checker_group = admin.commands["idle-checker"]
    assert isinstance(_checker_group, click.Group)
    _checker_group.add_command(_command_of_checkers)


_registry_group = admin.commands["registry"]
assert isinstance(_registry_group, click.Group)
for _command_of_registries in REGISTRY_COMMANDS:
    _registry_group.add_command(_command_of_registries)


_project_command, _resource_group_command, _user_command, _agent_command = (
    admin.commands[name] for name in ("project", "group", "user", "agent")
)
assert isinstance(_project_command, click.Group)
assert isinstance(_resource_group_command, click.Group)
assert isinstance(_user_command, click.Group)
assert isinstance(_agent_command, click.Group)


@_project_command.group("members")
def members() -> None:
    """List, add and remove the members of a project."""


_USERS_ARGUMENT = click.argument("users", metavar="USER…", nargs=-1, required=True)


@members.command("list", epilog=example("bai admin project members list vision"))
@click.argument("project")
@page_options
@json_option
@connected
async def list_members(
    connection: Connection,
    project: str,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the members of a project."""
    query = page_query(sort, limit, offset)
    page = await connection.client.get(f"/projects/{segment(project)}/members", **query)
    empty = f"no members; add one: bai admin project members add {project} USER"
    output.print_page(page, ("username", "email", "full_name"), as_json=as_json, empty=empty)


@members.command("add", epilog=example("bai admin project members add vision ann bob"))
@click.argument("project")
@_USERS_ARGUMENT
@json_option
@connected
async def add_members(
    connection: Connection, project: str, users: tuple[str, ...], *, as_json: bool
) -> None:
    """Add users to a project."""
    await _change_members(connection, "PUT", project, users)
    done = {"project": project, "added": list(users)}
    output.print_done(f"added {', '.join(users)} to {project}", done, as_json=as_json)


@members.command("rm", epilog=example("bai admin project members rm vision bob"))
@click.argument("project")
@_USERS_ARGUMENT
@json_option
@connected
async def remove_members(
    connection: Connection, project: str, users: tuple[str, ...], *, as_json: bool
) -> None:
    """Remove users from a project."""
    await _change_members(connection, "DELETE", project, users)
    done = {"project": project, "removed": list(users)}
    output.print_done(f"removed {', '.join(users)} from {project}", done, as_json=as_json)


async def _change_members(
    connection: Connection, method: str, project: str, users: tuple[str, ...]
) -> None:
    for user in users:
        await connection.client.call(
            method, f"/projects/{segment(project)}/members/{segment(user)}"
        )


_KIND_ARGUMENT = click.argument("kind", type=Choice(["domain", "project", "user", "keypair"]))


@_resource_group_command.command("links", epilog=example("bai admin group links gpu"))
@click.argument("group")
@page_options
@json_option
@connected
async def links(
    connection: Connection,
    group: str,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the domains, projects, users and keypairs that may use a resource group."""
    query = page_query(sort, limit, offset)
    page = await connection.client.get(f"/resource-groups/{segment(group)}/links", **query)
    empty = f"no links; allow a domain with: bai admin group link {group} domain NAME"
    output.print_page(page, ("kind", "name"), as_json=as_json, empty=empty)


@_resource_group_command.command("link", epilog=example("bai admin group link gpu domain research"))
@click.argument("group")
@_KIND_ARGUMENT
@click.argument("target")
@json_option
@connected
async def link(
    connection: Connection, group: str, kind: str, target: str, *, as_json: bool
) -> None:
    """Allow a domain, project, user or keypair to use a resource group."""
    await connection.client.put(_link_path(group, kind, target))
    done = {"resource_group": group, "kind": kind, "target": target}
    output.print_done(f"{kind} {target} may use {group}", done, as_json=as_json)


@_resource_group_command.command(
    "unlink", epilog=example("bai admin group unlink gpu domain research")
)
@click.argument("group")
@_KIND_ARGUMENT
@click.argument("target")
@json_option
@connected
async def unlink(
    connection: Connection, group: str, kind: str, target: str, *, as_json: bool
) -> None:
    """Revoke the access of a domain, project, user or keypair to a resource group."""
    await connection.client.delete(_link_path(group, kind, target))
    done = {"resource_group": group, "kind": kind, "target": target}
    output.print_done(f"{kind} {target} may no longer use {group}", done, as_json=as_json)


@_resource_group_command.command("schedule", epilog=example("bai admin group schedule default"))
@click.argument("group")
@json_option
@connected
async def schedule(connection: Connection, group: str, *, as_json: bool) -> None:
    """Show the running and pending sessions of a resource group, with agents and end times."""
    response = await connection.client.get(f"/resource-groups/{segment(group)}/schedule")
    if as_json:
        output.print_json(response)
        return
    rows = [
        {
            "position": row["position"] or "",
            "session": (row["session"] or {}).get("name", "(another domain)"),
            "owner": (row["session"] or {}).get("owner", ""),
            "agents": ", ".join(kernel["agent_id"] for kernel in row["kernels"]),
            "starts_at": row["starts_at"],
            "ends_at": row["ends_at"],
            "certainty": row["certainty"],
        }
        for row in (*response["running"], *response["waiting"])
    ]
    columns = ("position", "session", "owner", "agents", "starts_at", "ends_at", "certainty")
    output.print_table(rows, columns, empty="no running or pending sessions in this group")
    total = response["running_count"] + response["waiting_count"]
    if len(rows) < total:
        output.note(f"the first {len(rows)} of {total} sessions")


_resource_group_command.add_command(preemptions)


@admin.command("audit-counters", epilog=example("bai admin audit-counters"))
@json_option
@connected
async def audit_counters(connection: Connection, *, as_json: bool) -> None:
    """Compare all usage counters with the allocations; exit with 1 if they differ."""
    audit = await connection.client.get("/counter-audit")
    differences = audit["differences"]
    text = "\n".join(differences) or "all counters match the allocations"
    output.print_done(text, audit, as_json=as_json)
    if differences:
        sys.exit(1)


_resource_group_command.add_command(try_policy)
admin.add_command(image_prune)
admin.add_command(image_pull)
admin.add_command(cluster)
for _command_of_agents in (invite, invitations, uninvite):
    _agent_command.add_command(_command_of_agents)
admin.add_command(mail)
admin.add_command(config)
admin.add_command(invitation)
admin.add_command(audit)
admin.add_command(diagnostics)
admin.add_command(webhook)
_user_command.add_command(purge_users)


@_user_command.command("sign-out", epilog=example("bai admin user sign-out ann"))
@click.argument("user")
@json_option
@connected
async def sign_out(connection: Connection, user: str, *, as_json: bool) -> None:
    """Revoke all tokens of a user and stop all their servers."""
    await connection.client.post(f"/users/{segment(user)}/sign-out")
    output.print_done(f"{user} is signed out everywhere", {"username": user}, as_json=as_json)


@_user_command.command("approve", epilog=example("bai admin user approve ann"))
@click.argument("user")
@json_option
@connected
async def approve(connection: Connection, user: str, *, as_json: bool) -> None:
    """Activate an account that was created by a sign-up."""
    approved = await connection.client.post(f"/users/{segment(user)}/approve")
    output.print_done(f"{user} is approved", approved, as_json=as_json)


@_user_command.command("unlock", epilog=example("bai admin user unlock ann"))
@click.argument("user")
@json_option
@connected
async def unlock(connection: Connection, user: str, *, as_json: bool) -> None:
    """Clear the failed sign-ins of a user and end their lockout.

    Blocked IP addresses remain blocked.
    """
    await connection.client.post(f"/users/{segment(user)}/unlock")
    output.print_done(f"{user} can sign in again", {"username": user}, as_json=as_json)


@_user_command.command(
    "reset-authenticator", epilog=example("bai admin user reset-authenticator ann")
)
@click.argument("user")
@json_option
@connected
async def reset_authenticator(connection: Connection, user: str, *, as_json: bool) -> None:
    """Remove the authenticator for one-time codes of a user who has lost it."""
    await connection.client.delete(f"/users/{segment(user)}/authenticator")
    text = f"{user} no longer has an authenticator"
    output.print_done(text, {"username": user}, as_json=as_json)


@_user_command.command("identities", epilog=example("bai admin user identities ann"))
@click.argument("user")
@json_option
@connected
async def identities(connection: Connection, user: str, *, as_json: bool) -> None:
    """List the identities of a user at OpenID providers."""
    found = await connection.client.get(f"/users/{segment(user)}/identities")
    page = {"items": found["items"], "total": len(found["items"])}
    columns = ("id", "provider", "subject", "created_at")
    output.print_page(page, columns, as_json=as_json, empty=f"no identity is linked to {user}")


@_user_command.command(
    "unlink-identity", epilog=example("bai admin user unlink-identity ann 0b5e…")
)
@click.argument("user")
@click.argument("identity", metavar="ID")
@json_option
@connected
async def unlink_identity(
    connection: Connection, user: str, identity: str, *, as_json: bool
) -> None:
    """Remove an identity of a user, who can then no longer sign in with it."""
    await connection.client.delete(f"/users/{segment(user)}/identities/{segment(identity)}")
    done = {"username": user, "unlinked": identity}
    output.print_done(f"the identity is no longer linked to {user}", done, as_json=as_json)


def _link_path(group: str, kind: str, target: str) -> str:
    return f"/resource-groups/{segment(group)}/links/{kind}/{segment(target)}"


@_agent_command.command("drain", epilog=example("bai admin agent drain gpu-node-1"))
@click.argument("agent")
@json_option
@connected
async def drain(connection: Connection, agent: str, *, as_json: bool) -> None:
    """Place no new sessions on an agent; running sessions continue."""
    changed = await connection.client.patch(f"/agents/{segment(agent)}", {"schedulable": False})
    text = f"{agent} accepts no new sessions; running sessions continue"
    output.print_done(text, changed, as_json=as_json)


@_agent_command.command("undrain", epilog=example("bai admin agent undrain gpu-node-1"))
@click.argument("agent")
@json_option
@connected
async def undrain(connection: Connection, agent: str, *, as_json: bool) -> None:
    """Place new sessions on an agent again."""
    changed = await connection.client.patch(f"/agents/{segment(agent)}", {"schedulable": True})
    output.print_done(f"{agent} accepts new sessions", changed, as_json=as_json)
