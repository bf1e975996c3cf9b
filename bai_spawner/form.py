"""The Hub's start form: show the manager's options, and parse the input without validation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bai_services.core import errors
from bai_services.i18n.catalogue import LANGUAGES, Translator, translator
from bai_services.script_json import script_json

from .refused_fields import problems_of, refused_fields
from .server import SessionServer

# Maximum number of projects, and of pairs of project and resource group, for which the form
# requests the manager's offer in addition to the initial project. For any other pair, it shows the
# offer for the project of the pair, or else for the initial project.
MAX_OFFERS = 24
RESOURCE = "resource:"
UNIT = ":unit"
PLAIN = ("name", "project", "resource_group", "image", "preset")
LANGUAGE = "language"
PORTS = "preopen_ports"
_PORT = re.compile("[0-9]{1,5}")

Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SubmittedForm:
    """Values that a user submitted. The Hub shows them again if the start is refused.

    ``language`` is empty if the form names no known language. ``problems`` are pairs of a refused
    field and its problem; they are added when the start is refused, in the same request.
    """

    options: Mapping[str, Any]
    language: str
    problems: list[tuple[str, str]] = field(default_factory=list)


# A context variable, because the Hub renders a refused form from another spawner object in the same
# request.
_submitted: ContextVar[SubmittedForm | None] = ContextVar("bai_start_form", default=None)

# Secret form values of this request. The values are not passed as options, because the Hub stores
# the options of a start. Tasks that the request starts inherit this context variable.
_secrets: ContextVar[Mapping[str, str] | None] = ContextVar("bai_start_secrets", default=None)

_templates = Environment(
    loader=PackageLoader("bai_spawner"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def parse(form: Form) -> dict[str, Any]:
    """Return the session request in a submitted form, without its empty fields.

    The values are not validated here: the manager validates the requests of all clients.
    """
    request: dict[str, Any] = {}
    for name in PLAIN:
        if text := _first(form, name):
            request[name] = text
    if "preset" not in request:
        resources = {
            name.removeprefix(RESOURCE): text
            for name in form
            if name.startswith(RESOURCE)
            and not name.endswith(UNIT)
            and (text := _amount(form, name)) not in ("", "0")
        }
        if resources:
            request["resources"] = resources
    if text := _amount(form, "shared_memory"):
        request["shared_memory"] = text
    if mounts := _mounts(form):
        request["mounts"] = mounts
    environ, secrets = _environ(form)
    if environ:
        request["environ"] = environ
    if secrets:
        request["secret_environ"] = sorted(secrets)
    _secrets.set(secrets)
    if ports := _ports(form):
        request[PORTS] = ports
    language = _first(form, LANGUAGE)
    _submitted.set(SubmittedForm(request, language if language in LANGUAGES else ""))
    return request


def _first(form: Form, name: str) -> str:
    values = form.get(name) or [""]
    return str(values[0]).strip()


def _amount(form: Form, name: str) -> str:
    """Return a quantity with its unit: ``1.5`` and the unit field ``g`` become ``1.5g``."""
    text = _first(form, name)
    return text + _first(form, name + UNIT) if text else ""


def _mounts(form: Form) -> list[dict[str, str]]:
    names = ("vfolder", "subpath", "path", "permission", "name")
    rows = zip_longest(*(form.get(f"mount_{name}", ()) for name in names), fillvalue="")
    mounts = []
    for values in rows:
        row = {name: value.strip() for name, value in zip(names, values, strict=True)}
        if row["vfolder"]:
            mounts.append({name: value for name, value in row.items() if value})
    return mounts


def _environ(form: Form) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plain and the secret environment variables of a form."""
    fields = ("environ_name", "environ_value", "environ_secret")
    rows = zip_longest(*(form.get(name, ()) for name in fields), fillvalue="")
    variables: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, value, secret in rows:
        if name.strip():
            variables[bool(secret)][name.strip()] = value
    return variables


def with_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` with the values of their secret variables added.

    Raises
    ------
    InvalidRequest
        If a value is unknown: secret values are only available in the request that submitted them.
    """
    names = options.get("secret_environ")
    if not names:
        return dict(options)
    values = _secrets.get() or {}
    given = options.get("environ")
    environ = {**(given if isinstance(given, Mapping) else {}), **values}
    missing = [name for name in names if name not in environ] if isinstance(names, list) else []
    if missing:
        raise secrets_missing(missing)
    return {**options, "environ": environ}


def note_problems(error: errors.BaiError) -> None:
    """Store the problems of an error for the form that this request renders as its response."""
    if (submitted := _submitted.get()) is not None:
        submitted.problems[:] = problems_of(error)


def has_problems() -> bool:
    """Return whether the form in the response to this request shows problems of its fields."""
    submitted = _submitted.get()
    return submitted is not None and bool(submitted.problems)


def secrets_missing(names: Sequence[str]) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        f"the values of the secret variables {', '.join(map(str, names))} are not stored; start "
        "the session from the form and enter them again",
        field="secret_environ",
    )


def _ports(form: Form) -> list[int | str]:
    """Parse the ports, which are separated by spaces or commas; invalid ports stay text."""
    words = _first(form, PORTS).replace(",", " ").split()
    return [int(word) if _PORT.fullmatch(word) else word for word in words]


async def render(spawner: SessionServer) -> str:
    """Return the HTML of the form; if there are no offers, return the HTML of a message."""
    submitted = _submitted.get()
    translate = spawner.translate
    if submitted is not None and submitted.language:
        translate = translator(submitted.language)
    if submitted is not None:
        values = showable(submitted.options)
    else:
        values = showable(spawner.orm_spawner.user_options or {})
    try:
        offers = await gather_offers(spawner, values)
    except errors.BaiError as error:
        is_unavailable = isinstance(error, errors.Unavailable)
        message = translate("spawn.manager-unavailable") if is_unavailable else error.message
        return _templates.get_template("start_form_message.html").render(
            translate=translate, message=message
        )
    if not offers["projects"]:
        return _templates.get_template("start_form_message.html").render(
            translate=translate, message=translate("spawn.no-projects")
        )
    refused = refused_fields(
        submitted.problems if submitted else (), translate, lambda slot: label_of(slot, translate)
    )
    return _templates.get_template("start_form.html").render(
        translate=translate,
        refused=refused,
        refused_json=[one.as_json() for one in refused],
        texts=translate.area("spawn"),
        languages=LANGUAGES,
        offers=offers,
        values=values,
        server=spawner.display_name or spawner.name or "default",
        is_named=bool(spawner.name),
        script_json=script_json,
        label_of=lambda slot: label_of(slot, translate),
    )


def showable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options that the form can show; REST clients can save any options."""
    shown: dict[str, Any] = {
        name: str(options[name]) for name in (*PLAIN, "shared_memory") if options.get(name)
    }
    for name in ("resources", "environ"):
        if isinstance(options.get(name), Mapping):
            shown[name] = {str(key): str(value) for key, value in options[name].items()}
    if isinstance(options.get("secret_environ"), list):
        shown["secret_environ"] = [str(name) for name in options["secret_environ"]]
    if ports := options.get(PORTS):
        shown[PORTS] = ", ".join(map(str, ports)) if isinstance(ports, list) else str(ports)
    if isinstance(options.get("mounts"), Sequence):
        shown["mounts"] = [row for row in options["mounts"] if isinstance(row, Mapping)]
    return shown


async def gather_offers(spawner: SessionServer, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manager's offers for the user's projects and resource groups.

    ``by_choice`` of the result contains the offers by ``PROJECT/GROUP``; ``PROJECT/`` is the offer
    of the project's default group. ``project`` and ``resource_group`` are the initial choice.
    """
    owner = spawner.user.name
    last_project = str(values.get("project") or "")
    try:
        first = await spawner.sessions.options(owner, last_project)
    except (errors.NotFound, errors.Forbidden):
        # The user is no longer a member of the project of the last start.
        last_project, first = "", await spawner.sessions.options(owner)
    projects = [project["name"] for project in first["projects"]]
    chosen = last_project if last_project in projects else next(iter(projects), "")
    others = [name for name in projects if name != chosen][:MAX_OFFERS]
    offers = await asyncio.gather(*(spawner.sessions.options(owner, name) for name in others))
    by_project = {chosen: first, **dict(zip(others, offers, strict=True))}
    by_choice = {f"{project}/": offer for project, offer in by_project.items()}
    pairs = [
        (project, group["name"])
        for project, offer in by_project.items()
        # The only group of a project is its default group, so its offer is already known.
        if len(offer["resource_groups"]) > 1
        for group in offer["resource_groups"]
    ][:MAX_OFFERS]
    offers = await asyncio.gather(
        *(spawner.sessions.options(owner, project, group) for project, group in pairs)
    )
    for (project, group), offer in zip(pairs, offers, strict=True):
        by_choice[f"{project}/{group}"] = offer
    return {
        "projects": first["projects"],
        "project": chosen,
        "resource_group": default_group(by_project[chosen], values) if chosen else "",
        "by_choice": by_choice,
    }


def default_group(offer: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    names = [group["name"] for group in offer["resource_groups"]]
    if values.get("resource_group") in names:
        return str(values["resource_group"])
    marked = [group["name"] for group in offer["resource_groups"] if group.get("is_default")]
    return str(next(iter(marked or names), ""))


def label_of(slot: str, translate: Translator) -> str:
    if slot in ("cpu", "mem"):
        return translate(f"spawn.{slot}")
    family, _, kind = slot.partition(".")
    if kind == "shares":
        return translate("spawn.shares", family=family)
    if kind == "device":
        return translate("spawn.devices", family=family)
    return slot
