"""`bai model`: list, clone and deploy the models of model stores, and import models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.errors import Conflict
from bai_services.core.imports.lifecycle import ENDED
from bai_services.core.resources import MEM, parse_amount

from .. import output, units
from ..command import (
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
from ..serving.options import absolute_url

COLUMNS = ("folder", "title", "version", "task", "license", "size", "fits", "project", "problem")
_VERSION_COLUMNS = ("version", "folder", "is_latest", "size", "created_at", "id")
_IMPORT_COLUMNS = ("id", "source", "folder", "status", "progress", "owner", "created_at", "problem")
_POLL_SECONDS = 1.0
_FIT_TEXTS = {True: "yes", False: "no", None: ""}


@command_group()
def model() -> None:
    """Use the models of model stores.

    A model store is a project of type model-store; each of its folders is a model.
    """


@model.command(
    "list", epilog=example("bai model list", "bai model list llama --task text-generation")
)
@click.argument("text", required=False)
@click.option("--task", metavar="NAME", help="Only models for this task.")
@click.option("--framework", metavar="NAME", help="Only models of this framework.")
@click.option("--license", "license_", metavar="NAME", help="Only models with this license.")
@click.option("--max-size", metavar="SIZE", help="Only models up to this size, such as 20g.")
@click.option("--fits", is_flag=True, help="Only models that your quotas permit.")
@click.option("--all-versions", is_flag=True, help="Also list earlier versions.")
@page_options
@json_option
@connected
async def list_(
    connection: Connection,
    text: str | None,
    *,
    task: str | None,
    framework: str | None,
    license_: str | None,
    max_size: str | None,
    fits: bool,
    all_versions: bool,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List models; with TEXT, those that contain it."""
    filters = {
        "text__contains": text,
        "task": task,
        "frameworks__contains": framework and f",{framework},",
        "license": license_,
        "size_bytes__lte": max_size and str(parse_amount(MEM, max_size)),
        "fits": "true" if fits else None,
        "is_latest": None if all_versions else "true",
    }
    query = page_query(sort, limit, offset)
    query |= {name: value for name, value in filters.items() if value}
    page = await connection.client.get("/models", **query)
    if not as_json:
        for item in page["items"]:
            _add_texts(item)
    output.print_page(page, COLUMNS, as_json=as_json, empty="no models")


def _add_texts(item: dict[str, Any]) -> None:
    size = item["size_bytes"]
    item["size"] = "" if size is None else units.size(size)
    item["fits"] = _FIT_TEXTS[item["is_fitting"]]


@model.command(epilog=example("bai model info llama-3", "bai model info llama-3 --readme"))
@click.argument("name")
@click.option("--readme", is_flag=True, help="Print the README.")
@json_option
@connected
async def info(connection: Connection, name: str, *, readme: bool, as_json: bool) -> None:
    """Show a model; NAME is the name or id of its folder."""
    if readme:
        found = await connection.client.get(f"{_path(name)}/readme")
        if as_json:
            output.print_json(found)
        else:
            output.print_log(found["text"])
        return
    output.print_fields(await connection.client.get(_path(name)), as_json=as_json)


@model.command(
    short_help="List the versions of a model.", epilog=example("bai model versions llama-3")
)
@click.argument("name")
@page_options
@json_option
@connected
async def versions(
    connection: Connection, name: str, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the versions of a model: models of its store with the same name."""
    query = page_query(sort, limit, offset)
    page = await connection.client.get(f"{_path(name)}/versions", **query)
    if not as_json:
        for item in page["items"]:
            _add_texts(item)
    output.print_page(page, _VERSION_COLUMNS, as_json=as_json, empty="no versions")


@model.command(epilog=example("bai model refresh llama-3"))
@click.argument("name")
@json_option
@connected
async def refresh(connection: Connection, name: str, *, as_json: bool) -> None:
    """Read the definition and the README of a model again."""
    found = await connection.client.post(f"{_path(name)}/refresh", {})
    problem = f"; its definition is not valid: {found['problem']}" if found["problem"] else ""
    output.print_done(f"model {found['folder']} refreshed{problem}", found, as_json=as_json)


@model.command(epilog=example("bai model rm llama-3"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Remove a model from its store: move its folder to the trash; for administrators."""
    found = await connection.client.get(_path(name))
    await connection.client.delete(f"/vfolders/{found['id']}")
    text = (
        f"folder {found['folder']} moved to the trash; restore it with: "
        f"bai vfolder restore {found['id']}"
    )
    output.print_done(text, found, as_json=as_json)


@model.command(epilog=example("bai model clone llama-3 my-llama"))
@click.argument("name")
@click.argument("folder", required=False)
@click.option("--project", metavar="NAME", help="Create a folder of this project.")
@click.option("--host", metavar="NAME", help="Storage host of the new folder.")
@click.option("--wait/--no-wait", default=True, help="Wait until all files are copied.")
@json_option
@connected
async def clone(
    connection: Connection,
    name: str,
    folder: str | None,
    *,
    project: str | None,
    host: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Clone a model to FOLDER. Default: the name of the model's folder."""
    body = {"name": folder, "project": project, "host": host}
    made = await connection.client.post(f"{_path(name)}/clone", _given(body))
    if wait:
        made = await _wait_for_clone(connection.client, made)
    text = "cloned" if wait else "being cloned"
    output.print_done(f"model {name} {text} to folder {made['name']}", made, as_json=as_json)


async def _wait_for_clone(client: Client, folder: dict[str, Any]) -> dict[str, Any]:
    with output.progress_console().status("copying files …"):
        while folder["status"] == "cloning":
            await asyncio.sleep(_POLL_SECONDS)
            folder = await client.get(f"/vfolders/{folder['id']}")
    if folder["status"] != "ready":
        raise Conflict(f"the clone has failed: {folder['status_info']}")
    return folder


@model.command(
    epilog=example(
        "bai model deploy llama-3", "bai model deploy llama-3 chat --variant vllm --image NAME"
    )
)
@click.argument("name")
@click.argument("endpoint", required=False)
@click.option("--project", metavar="NAME", help="Project that is charged.")
@click.option(
    "--variant", metavar="NAME", help="Runtime variant. Default: the variant of the model."
)
@click.option("--command", metavar="COMMAND", help="Command of the server.")
@click.option("--image", metavar="NAME", help="Image of the replicas.")
@click.option("--preset", metavar="NAME", help="Resource preset. Default: the smallest.")
@click.option(
    "-r", "--resource", "resources", multiple=True, metavar="SLOT=AMOUNT", help="A resource."
)
@click.option("--resource-group", metavar="NAME", help="Resource group of the replicas.")
@click.option("--replicas", type=click.IntRange(0, 100), help="Default: 1.")
@click.option(
    "--public", "is_public", is_flag=True, default=None, help="Allow calls without a token."
)
@json_option
@connected
async def deploy(
    connection: Connection,
    name: str,
    endpoint: str | None,
    *,
    resources: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Create an endpoint that serves a model."""
    amounts = parse_pairs(resources, "--resource", "cpu=1")
    body = _given({"name": endpoint, "resources": amounts or None, **options})
    made = await connection.client.post(f"{_path(name)}/deployment", body)
    output.print_done(
        f"endpoint {made['name']} created: {absolute_url(connection, made['url'])}; see "
        f"`bai service info {made['name']}`",
        made,
        as_json=as_json,
    )


@model.command(
    "import",
    epilog=example(
        "bai model import google/gemma-2-2b",
        "bai model import google/gemma-2-2b --revision v1 --pattern '*.safetensors' --no-wait",
        "bai model import https://example.org/model.gguf --sha256 HEX",
    ),
)
@click.argument("source")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit. Default: main.")
@click.option(
    "--pattern", "patterns", multiple=True, metavar="PATTERN", help="Only matching files."
)
@click.option("--sha256", metavar="HEX", help="Checksum of the file at a URL.")
@click.option("--project", metavar="NAME", help="Model store. Default: the only one.")
@click.option("--folder", metavar="NAME", help="Name of the new folder.")
@click.option("--wait/--no-wait", default=True, help="Wait until the import has ended.")
@json_option
@connected
async def import_(
    connection: Connection,
    source: str,
    *,
    patterns: tuple[str, ...],
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Import a model from a Hugging Face-compatible hub, or a file from a URL."""
    kind = "url" if "://" in source else "repository"
    body = _given({kind: source, "patterns": list(patterns) or None, **options})
    made = await connection.client.post("/model-imports", body)
    if made["status"] == "requested":
        output.print_done(_waiting(made), made, as_json=as_json)
        return
    if wait:
        made = await _wait_for_import(connection.client, made)
        if made["status"] != "done":
            raise Conflict(_failure(made))
    text = "imported" if wait else f"being imported (import {made['id']})"
    output.print_done(f"{source} {text} into folder {made['folder']}", made, as_json=as_json)


def _waiting(made: Mapping[str, Any]) -> str:
    return f"import {made['id']} waits for the approval of an administrator"


def _failure(made: Mapping[str, Any]) -> str:
    if made["status"] != "failed":
        return f"the import is {made['status']}; its folder is deleted"
    return f"the import has failed: {made['problem']}; to try again: bai model retry {made['id']}"


async def _wait_for_import(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    with output.progress_console().status("importing …") as status:
        while made["status"] not in set(ENDED):
            await asyncio.sleep(_POLL_SECONDS)
            made = await client.get(f"/model-imports/{made['id']}")
            status.update(f"importing … {_progress(made)}")
    return made


def _progress(item: Mapping[str, Any]) -> str:
    if not item["total_files"]:
        return ""
    received, total = units.size(item["bytes"]), units.size(item["total_bytes"])
    return f"{item['files']}/{item['total_files']} files, {received} of {total}"


@model.command(epilog=example("bai model imports"))
@page_options
@json_option
@connected
async def imports(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List your imports, and those that you may approve."""
    page = await connection.client.get("/model-imports", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["progress"] = _progress(item)
    output.print_page(page, _IMPORT_COLUMNS, as_json=as_json, empty="no imports")


@model.command(epilog=example("bai model approve 3f6a…"))
@click.argument("import_id", metavar="ID")
@json_option
@connected
async def approve(connection: Connection, import_id: str, *, as_json: bool) -> None:
    """Approve an import that a member of the store has requested."""
    path = f"/model-imports/{segment(import_id)}"
    made = await connection.client.post(f"{path}/approval", {})
    output.print_done(f"import of {made['source']} approved", made, as_json=as_json)


@model.command(epilog=example("bai model retry 3f6a…"))
@click.argument("import_id", metavar="ID")
@json_option
@connected
async def retry(connection: Connection, import_id: str, *, as_json: bool) -> None:
    """Restart a failed import; after an interruption, it continues where it stopped.

    If its folder has been deleted, it may need the approval of an administrator again.
    """
    path = f"/model-imports/{segment(import_id)}"
    made = await connection.client.post(f"{path}/retry", {})
    restarted = f"import of {made['source']} restarted"
    text = _waiting(made) if made["status"] == "requested" else restarted
    output.print_done(text, made, as_json=as_json)


@model.command(epilog=example("bai model cancel 3f6a…"))
@click.argument("import_id", metavar="ID")
@json_option
@connected
async def cancel(connection: Connection, import_id: str, *, as_json: bool) -> None:
    """Cancel or reject an import; its folder is deleted."""
    made = await connection.client.delete(f"/model-imports/{segment(import_id)}")
    output.print_done(f"import of {made['source']} cancelled", made, as_json=as_json)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _path(name: str) -> str:
    return f"/models/{segment(name)}"
