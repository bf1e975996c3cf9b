"""Reference of the REST API as Markdown, from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from markdown_text import escape, table

from bai_services.api.openapi import document
from bai_services.api.routes import ROUTES

TITLES = {
    "health": "Health of the manager",
    "me": "Own account",
    "auth": "Authentication",
    "vfolders": "Folders",
    "spawner": "For the Hub",
    "audit": "Audit log",
}
Json = Mapping[str, Any]


def rest_reference() -> str:
    """Return a section for each tag with its operations, then every object."""
    api = document(ROUTES, "/services/bai/api/v1")
    sections: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, described in methods.items():
            lines = sections.setdefault(described["tags"][0], [])
            lines += _operation(method.upper(), path, described)
    lines = []
    for tag, operations in sections.items():
        lines += [f"\n## {TITLES.get(tag, tag.replace('-', ' ').capitalize())}\n", *operations]
    lines += ["\n## Objects\n", "A field marked * is required in a request.\n"]
    for name, schema in sorted(api["components"]["schemas"].items()):
        lines += _object(name, schema)
    return "\n".join(lines)


def _operation(method: str, path: str, described: Json) -> Iterator[str]:
    yield f"\n### `{method} {path}`\n"
    yield f"{escape(described['summary'])}."
    facts = [] if described["security"] else ["No authentication required."]
    body = described.get("requestBody", {}).get("content", {})
    facts += [f"Body: {_content(kind, value)}." for kind, value in body.items()]
    for status, answer in described["responses"].items():
        if status != "default":
            content = answer.get("content", {})
            shown = "".join(f": {_content(kind, value)}" for kind, value in content.items())
            facts.append(f"Response {status}{shown}.")
    yield from ("", " ".join(facts))
    rows = [
        (f"`{parameter['name']}`", _type(parameter["schema"]), escape(parameter["description"]))
        for parameter in described["parameters"]
        if parameter["in"] == "query" and "description" in parameter
    ]
    yield from table(("query parameter", "type", "meaning"), rows)


def _content(kind: str, content: Json) -> str:
    schema = content["schema"]
    if kind != "application/json":
        return f"`{kind}`"
    if "items" in schema.get("properties", {}):
        return f"a [list](rest-api.md#lists) of {_type(schema['properties']['items']['items'])}"
    return _type(schema)


def _object(name: str, schema: Json) -> Iterator[str]:
    yield f"\n({_anchor(name)})=\n### {name}\n"
    if "description" in schema:
        yield from (escape(schema["description"]), "")
    if "enum" in schema:
        yield f"One of {_values(schema['enum'])}."
    required = schema.get("required", ())
    rows = [
        (f"`{field}`" + (r"\*" if field in required else ""), _type(facts), _meaning(facts))
        for field, facts in schema.get("properties", {}).items()
    ]
    yield from table(("field", "type", "meaning"), rows)


def _anchor(name: str) -> str:
    return f"object-{name.lower()}"


def _values(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{_anchor(name)})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(part) for part in schema[several]))
    if "enum" in schema:
        return _values(schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    values = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(values, dict):
        return f"map to {_type(values)}"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema.get("type", "any"))


def _meaning(schema: Json) -> str:
    facts = [escape(schema["description"])] if "description" in schema else []
    if schema.get("default") not in (None, "", [], {}):
        facts.append(f"default `{schema['default']}`")
    limits = {"minimum": "minimum", "maximum": "maximum", "maxLength": "maximum length"}
    facts += [f"{label} {schema[key]}" for key, label in limits.items() if key in schema]
    return "; ".join(facts)
