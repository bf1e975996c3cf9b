"""Session templates: requests kept by name."""

from __future__ import annotations

from typing import Any

import click
import yaml

from bai_services.core.errors import InvalidRequest

from .. import output
from ..admin.bounded_yaml import load_yaml
from ..command import Connection, connected, example, json_option, segment

COLUMNS = ("name", "audience", "owner", "project", "description", "changed_at")


@click.group()
def template() -> None:
    """Keep requests for sessions by name, to start from them."""


@template.command(
    epilog=example("bai template create train train.yaml --description 'Nightly training'")
)
@click.argument("name")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--description", metavar="TEXT", help="What it is for.")
@click.option("--project", metavar="NAME", help="For all members of a project (administrators).")
@click.option("--domain", "for_domain", is_flag=True, help="For all of one's domain (the same).")
@click.option("--replace", is_flag=True, help="In place of the one of that name.")
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    file: Any,
    *,
    description: str | None,
    project: str | None,
    for_domain: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Keep the request in FILE (YAML or JSON, - is standard input) under a name.

    It has the fields of a session in the REST API; a session that starts from it may say otherwise.
    """
    if project and for_domain:
        raise click.UsageError("--project and --domain exclude each other")
    body: dict[str, Any] = {"name": name, "request": _request(file)}
    if description is not None:
        body["description"] = description
    if replace:
        done = await connection.client.patch(f"/session-templates/{segment(name)}", body)
    else:
        if project:
            body |= {"audience": "project", "project": project}
        elif for_domain:
            body["audience"] = "domain"
        done = await connection.client.post("/session-templates", body)
    output.print_done(f"{name} is kept for the {done['audience']}", done, as_json=as_json)


@template.command("ls", epilog=example("bai template ls"))
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Number of entries.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="First entry.")
@click.option("--sort", metavar="FIELD[,…]", help="With - in front for descending.")
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the templates that one may use."""
    query: dict[str, Any] = {"limit": limit, "offset": offset}
    if sort:
        query["sort"] = sort
    page = await connection.client.get("/session-templates", **query)
    output.print_page(
        page,
        COLUMNS,
        as_json=as_json,
        empty="no templates yet; store a request: bai template create NAME FILE",
    )


@template.command(epilog=example("bai template info train"))
@click.argument("name")
@json_option
@connected
async def info(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show one template with its request."""
    found = await connection.client.get(f"/session-templates/{segment(name)}")
    output.print_thing(found, as_json=as_json)


@template.command(epilog=example("bai template rm train"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Remove a template; sessions that were started from it stay."""
    await connection.client.delete(f"/session-templates/{segment(name)}")
    output.print_done(f"{name} is removed", {"name": name}, as_json=as_json)


def _request(file: Any) -> dict[str, Any]:
    try:
        request = load_yaml(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file.name} cannot be read: {error}") from error
    if not isinstance(request, dict):
        raise InvalidRequest(f"{file.name} must hold one map with the fields of a session")
    return request
