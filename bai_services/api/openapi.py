"""The OpenAPI 3.1 document, built from the routes and their models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from bai_services import __version__

from .base import APIHandler, Operation

METHODS = ("get", "post", "put", "patch", "delete", "head")
_GROUP = re.compile(r"\(\?P<(\w+)>[^)]*\)")
_REF = "#/components/schemas/{model}"

_ERROR = {
    "type": "object",
    "required": ["error", "message", "details"],
    "properties": {
        "error": {"type": "string", "description": "stable code"},
        "message": {"type": "string"},
        "coded": {
            "allOf": [{"$ref": _REF.format(model="CodedText")}],
            "description": "the message as a code with values, if it has one",
        },
        "details": {"type": "object"},
    },
}

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BYTES = {"application/octet-stream": _BINARY}

# Query parameter that may be repeated.
_STRINGS = {"type": "array", "items": {"type": "string"}}

# Upload chunk: the body of a tus ``PATCH`` request.
_UPLOAD_CHUNK = {
    "application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}
}

_LIST_PARAMETERS = [
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 500}},
    {"name": "offset", "in": "query", "schema": {"type": "integer", "minimum": 0}},
    {
        "name": "sort",
        "in": "query",
        "schema": {"type": "string"},
        "description": "sort fields, separated by commas; the prefix - means descending order",
    },
    {
        "name": "format",
        "in": "query",
        "schema": {"type": "string", "enum": ["json", "csv", "jsonl"]},
        "description": "csv, jsonl (JSON lines): a file with all rows from offset to the end, at "
        "most 200,000; limit has no effect",
    },
    {
        "name": "filename",
        "in": "query",
        "schema": {"type": "string", "maxLength": 255},
        "description": "name of the file for csv and jsonl; default: the name of the list",
    },
]


def document(routes: Iterable[tuple[str, type[APIHandler]]], prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document.

    ``routes`` are pairs of a path pattern, relative to ``prefix``, and a handler.
    """
    operations = [
        (path_of(pattern), _GROUP.findall(pattern), method, op)
        for pattern, handler in routes
        for method in METHODS
        if (op := getattr(getattr(handler, method), "operation", None)) is not None
    ]
    schemas, definitions = _schemas(op for *_, op in operations)
    paths: dict[str, Any] = {}
    for path, names, method, op in operations:
        paths.setdefault(path, {})[method] = _operation(method, path, names, op, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bai-hub", "version": __version__},
        "servers": [{"url": prefix}],
        "paths": paths,
        "components": {
            "schemas": {**definitions, "Error": _ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "keypair": {"type": "apiKey", "in": "header", "name": "Authorization"},
            },
        },
    }


def path_of(pattern: str) -> str:
    """Convert the pattern of a route to an OpenAPI path: ``/a/(?P<b>[^/]+)`` to ``/a/{b}``."""
    return _GROUP.sub(r"{\1}", pattern)


def _schemas(operations: Iterable[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of each (model, mode), and the definitions that the schemas refer to."""
    inputs: dict[tuple[Any, Any], TypeAdapter[Any]] = {}
    for op in operations:
        if op.body is not None:
            inputs[op.body, "validation"] = TypeAdapter(op.body)
        if op.returns is not None:
            inputs[op.returns, "serialization"] = TypeAdapter(op.returns)
    keyed, definitions = TypeAdapter.json_schemas(
        [(key, key[1], adapter) for key, adapter in inputs.items()], ref_template=_REF
    )
    return {key: schema for (key, _), schema in keyed.items()}, definitions.get("$defs", {})


def _operation(
    method: str, path: str, names: list[str], op: Operation, schemas: dict[Any, Any]
) -> dict[str, Any]:
    response: dict[str, Any] = {"description": op.status.phrase}
    if op.returns is not None:
        schema = schemas[op.returns, "serialization"]
        response["content"] = {
            "application/json": {"schema": _page(schema) if op.is_list else schema}
        }
    if op.is_list:
        response["content"]["text/csv"] = {"schema": {"type": "string"}}
        response["content"]["application/x-ndjson"] = {"schema": {"type": "string"}}
    if op.is_file and method == "get":
        response["content"] = dict.fromkeys(op.media_types, _BINARY)
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method}{path}").strip("_"),
        "summary": op.summary,
        "tags": [op.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
        + [
            {
                "name": name,
                "in": "query",
                "description": text,
                "schema": _STRINGS if name in op.repeated else {"type": "string"},
            }
            for name, text in op.parameters.items()
        ]
        + (_LIST_PARAMETERS if op.is_list else []),
        "responses": {
            str(op.status.value): response,
            "default": {
                "description": "Error",
                "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
            },
        },
        "security": [] if op.is_open else [{"token": []}, {"keypair": []}],
    }
    if op.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[op.body, "validation"]}},
        }
    if op.is_file and method == "put":
        described["requestBody"] = {"required": True, "content": _BYTES}
    if op.is_file and method == "patch":
        described["requestBody"] = {"required": True, "content": _UPLOAD_CHUNK}
    return described


def _page(item: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: {"type": "integer"} for name in ("total", "limit", "offset")}
    return {
        "type": "object",
        "required": ["items", *numbers],
        "properties": {"items": {"type": "array", "items": item}, **numbers},
    }
