"""Parser of ``deployment-config.yaml``: image, resources and variables of the replicas.

Values in the section of a runtime variant take precedence over values for all variants:

environment: {image: "cr.example.com/python:3.12"}
resource_slots: {cpu: 4, mem: 8g}
environ: {HF_HUB_OFFLINE: "1"}
vllm:
  environment: {image: "cr.example.com/vllm:1"}
"""

from __future__ import annotations

from typing import Any

import yaml

from ..bounded_yaml import BoundedLoader
from ..errors import InvalidRequest
from ..user_input import shown
from ..yaml_sections import MAX_TEXT
from .definition import MAX_BYTES
from .variants import VARIANTS

FILE_NAME = "deployment-config.yaml"
MAX_NODES = 2000
MAX_ENTRIES = 100
_SECTIONS = ("environment", "resource_slots", "environ")
# The architecture is accepted, but the agents determine it.
_ENVIRONMENT = ("image", "architecture")
_NULL = "tag:yaml.org,2002:null"

_Pairs = dict[str, tuple[yaml.Node, yaml.Node]]


def parse_deployment_config(text: str, variant: str) -> dict[str, Any]:
    """Return the fields of the replicas' sessions that the file sets for a runtime variant.

    The run time grows with the size of the text, so call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not valid YAML, exceeds a limit, or has an unknown or invalid key; ``line``
        in the details is the line of the problem.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise _problem(1, f"the file has more than {MAX_BYTES} bytes")
    try:
        loader = BoundedLoader(text, MAX_NODES)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _problem(mark.line + 1 if mark else 1, error.problem or "not valid YAML") from None
    except yaml.YAMLError:
        raise _problem(1, "the file has characters that YAML does not allow") from None
    if root is None or root.tag == _NULL:
        return {}
    general = _pairs(root, "the file", (*_SECTIONS, *VARIANTS))
    special: _Pairs = {}
    for name in VARIANTS:
        if name in general:
            # The sections of other variants must also be valid.
            found = _pairs(general.pop(name)[1], name, _SECTIONS)
            _fields(found)
            special = found if name == variant else special
    base, own = _fields(general), _fields(special)
    merged = {name: {**base[name], **own[name]} for name in _SECTIONS}
    fields = {
        "image": merged["environment"].get("image"),
        "resources": merged["resource_slots"],
        "environ": merged["environ"],
    }
    return {name: value for name, value in fields.items() if value}


def _fields(pairs: _Pairs) -> dict[str, dict[str, str]]:
    return {
        name: _texts(pairs[name][1], name, _ENVIRONMENT if name == "environment" else ())
        if name in pairs
        else {}
        for name in _SECTIONS
    }


def _texts(node: yaml.Node, name: str, known: tuple[str, ...]) -> dict[str, str]:
    """Return a mapping of texts and numbers."""
    pairs = _pairs(node, name, known)
    if len(pairs) > MAX_ENTRIES:
        raise _problem(_line(node), f"{name} has more than {MAX_ENTRIES} keys")
    for key, (_, value) in pairs.items():
        is_text = isinstance(value, yaml.ScalarNode) and value.tag != _NULL
        if not is_text or "\0" in value.value or len(value.value) > MAX_TEXT:
            raise _problem(
                _line(value),
                f"{shown(key)!r} must be a string or a number of at most {MAX_TEXT} characters",
            )
    return {key: str(value.value) for key, (_, value) in pairs.items()}


def _pairs(node: yaml.Node, name: str, known: tuple[str, ...]) -> _Pairs:
    """Return the keys and values of a mapping; ``known`` are the permitted keys, () permits all."""
    if node.tag == _NULL:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise _problem(_line(node), f"{name} must be a mapping of keys and values")
    pairs: _Pairs = {}
    for key, value in node.value:
        is_valid = isinstance(key, yaml.ScalarNode) and _is_encodable(key.value)
        if not is_valid or len(key.value) > MAX_TEXT:
            raise _problem(_line(key), f"a key of {name} is not a string")
        if known and key.value not in known:
            raise _problem(_line(key), f"{shown(key.value)!r} is not known; use {', '.join(known)}")
        if key.value in pairs:
            raise _problem(_line(key), f"{name} has the key {shown(key.value)} twice")
        if isinstance(value, yaml.ScalarNode) and not _is_encodable(value.value):
            raise _problem(_line(value), f"{shown(key.value)!r} has characters that are not valid")
        pairs[key.value] = (key, value)
    return pairs


def _is_encodable(text: str) -> bool:
    """Return whether a text has no halves of surrogate pairs, which UTF-8 cannot represent."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _problem(line: int, text: str) -> InvalidRequest:
    return InvalidRequest(f"{FILE_NAME}, line {line}: {text}", field="definition_file", line=line)
