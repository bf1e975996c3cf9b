"""The start form: its offer comes from the manager, and its input goes there unchecked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bai_services.core import errors
from bai_services.i18n.catalogue import LANGUAGES, Translator, translator

from .refused_fields import problems_of, refused_fields
from .server import SessionServer

# Each combination of project and resource group has its own offer. Beyond this number, the
# remaining ones show the first one's offer, and the manager validates the choice.
MAX_OFFERS = 24
RESOURCE = "resource:"
UNIT = ":unit"
PLAIN = ("name", "project", "resource_group", "image", "preset")
LANGUAGE = "language"
PORTS = "preopen_ports"
_PORT = re.compile("[0-9]{1,5}")

Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Sent:
    """Values that a user sent, shown again when the Hub shows the form again.

    The start, a task of the same request, adds the refused fields.
    """

    options: Mapping[str, Any]
    language: str
    problems: list[tuple[str, str]] = field(default_factory=list)


# The Hub renders a refused form from another spawner object, in the same request.
_sent: ContextVar[Sent | None] = ContextVar("bai_start_form", default=None)

# Secret form values of this request. The Hub stores the options of a start, so secrets are passed
# separately; tasks that the request starts inherit the context.
_secrets: ContextVar[Mapping[str, str] | None] = ContextVar("bai_start_secrets", default=None)

_templates = Environment(
    loader=PackageLoader("bai_spawner"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def parse(form: Form) -> dict[str, Any]:
    """Return the session request in a form (lists of texts by field), without empty fields.

    Nothing is validated here: the manager validates every request alike.
    """
    found: dict[str, Any] = {}
    for name in PLAIN:
        if text := _first(form, name):
            found[name] = text
    if "preset" not in found:
        resources = {
            name.removeprefix(RESOURCE): text
            for name in form
            if name.startswith(RESOURCE)
            and not name.endswith(UNIT)
            and (text := _amount(form, name)) not in ("", "0")
        }
        if resources:
            found["resources"] = resources
    if text := _amount(form, "shared_memory"):
        found["shared_memory"] = text
    if mounts := _mounts(form):
        found["mounts"] = mounts
    environ, secrets = _environ(form)
    if environ:
        found["environ"] = environ
    if secrets:
        found["secret_environ"] = sorted(secrets)
    _secrets.set(secrets)
    if ports := _ports(form):
        found[PORTS] = ports
    language = _first(form, LANGUAGE)
    _sent.set(Sent(found, language if language in LANGUAGES else ""))
    return found


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
    found = []
    for values in rows:
        row = {name: value.strip() for name, value in zip(names, values, strict=True)}
        if row["vfolder"]:
            found.append({name: value for name, value in row.items() if value})
    return found


def _environ(form: Form) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a form: those stored for the next form, and the secret ones."""
    fields = ("environ_name", "environ_value", "environ_secret")
    rows = zip_longest(*(form.get(name, ()) for name in fields), fillvalue="")
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, value, secret in rows:
        if name.strip():
            found[bool(secret)][name.strip()] = value
    return found


def with_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the values of their secret variables, which only this request has.

    Raises
    ------
    InvalidRequest
        If a value is unknown, because the options are those of an earlier start.
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
    """Store the refused fields for the form in the response to this request."""
    if (sent := _sent.get()) is not None:
        sent.problems[:] = problems_of(error)


def has_problems() -> bool:
    """Return whether the form in this response shows the problems itself."""
    sent = _sent.get()
    return sent is not None and bool(sent.problems)


def secrets_missing(names: Sequence[str]) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        f"the values of the secret variables {', '.join(map(str, names))} are not kept; start "
        "the session from the form and enter them again",
        field="secret_environ",
    )


def _ports(form: Form) -> list[int | str]:
    """Return the ports of a field, separated by spaces or commas; invalid ones stay texts."""
    words = _first(form, PORTS).replace(",", " ").split()
    return [int(word) if _PORT.fullmatch(word) else word for word in words]


async def render(spawner: SessionServer) -> str:
    """Return the form's HTML, or a message if the manager is unavailable."""
    sent = _sent.get()
    translate = spawner.translate
    if sent is not None and sent.language:
        translate = translator(sent.language)
    if sent is not None:
        values = showable(sent.options)
    else:
        values = showable(spawner.orm_spawner.user_options or {})
    try:
        offers = await gather_offers(spawner, values)
    except errors.BaiError as error:
        is_unavailable = isinstance(error, errors.Unavailable)
        message = translate("spawn.manager-away") if is_unavailable else error.message
        return _templates.get_template("start_form_message.html").render(
            translate=translate, message=message
        )
    if not offers["projects"]:
        return _templates.get_template("start_form_message.html").render(
            translate=translate, message=translate("spawn.no-projects")
        )
    refused = refused_fields(
        sent.problems if sent else (), translate, lambda slot: label_of(slot, translate)
    )
    return _templates.get_template("start_form.html").render(
        translate=translate,
        refused=refused,
        problems=[one.as_json() for one in refused],
        texts=translate.area("spawn"),
        languages=LANGUAGES,
        offers=offers,
        values=values,
        server=spawner.display_name or spawner.name or "default",
        is_named=bool(spawner.name),
        as_json=as_json,
        label_of=lambda slot: label_of(slot, translate),
    )


def showable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved options that the form can show; REST callers may have saved anything."""
    found: dict[str, Any] = {
        name: str(options[name]) for name in (*PLAIN, "shared_memory") if options.get(name)
    }
    for name in ("resources", "environ"):
        if isinstance(options.get(name), Mapping):
            found[name] = {str(key): str(value) for key, value in options[name].items()}
    if isinstance(options.get("secret_environ"), list):
        found["secret_environ"] = [str(name) for name in options["secret_environ"]]
    if ports := options.get(PORTS):
        found[PORTS] = ", ".join(map(str, ports)) if isinstance(ports, list) else str(ports)
    if isinstance(options.get("mounts"), Sequence):
        found["mounts"] = [row for row in options["mounts"] if isinstance(row, Mapping)]
    return found


async def gather_offers(spawner: SessionServer, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offer of each project and resource group of the user.

    The result has ``projects``, the chosen ``project`` and ``resource_group`` and ``by_choice``:
    the manager's offers by ``PROJECT/GROUP``, where ``PROJECT/`` is the project's default.
    """
    owner = spawner.user.name
    asked = str(values.get("project") or "")
    try:
        first = await spawner.sessions.options(owner, asked)
    except (errors.NotFound, errors.Forbidden):
        # The user is no longer in the project used last time.
        asked, first = "", await spawner.sessions.options(owner)
    projects = [project["name"] for project in first["projects"]]
    chosen = asked if asked in projects else next(iter(projects), "")
    firsts = dict([(chosen, first)])
    others = [name for name in projects if name != chosen][:MAX_OFFERS]
    answers = await asyncio.gather(*(spawner.sessions.options(owner, name) for name in others))
    firsts |= dict(zip(others, answers, strict=True))
    by_choice = {f"{project}/": answer for project, answer in firsts.items()}
    pairs = [
        (project, group["name"])
        for project, answer in firsts.items()
        for group in answer["resource_groups"]
    ][:MAX_OFFERS]
    alone = {p for p, answer in firsts.items() if len(answer["resource_groups"]) == 1}
    wanted = [pair for pair in pairs if pair[0] not in alone]
    answers = await asyncio.gather(
        *(spawner.sessions.options(owner, project, group) for project, group in wanted)
    )
    for (project, group), answer in zip(wanted, answers, strict=True):
        by_choice[f"{project}/{group}"] = answer
    return {
        "projects": first["projects"],
        "project": chosen,
        "resource_group": default_group(firsts[chosen], values) if chosen else "",
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


def as_json(value: Any) -> Markup:
    """Return JSON that is safe inside a script element: it cannot close the element or open
    another.
    """
    text = json.dumps(value, ensure_ascii=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return Markup(text)
