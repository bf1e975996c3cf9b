"""Parser of ``service-definition.toml``: image and resources of replicas for each variant.

[vllm.environment]
image = "cr.example.com/vllm:1"
[vllm.resource_slots]
cpu = 4
"cuda.shares" = "0.5"
[vllm.environ]
HF_HUB_OFFLINE = "1"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequest
from ..user_input import shown
from ..yaml_sections import MAX_TEXT

FILE_NAME = "service-definition.toml"
MAX_BYTES = 64 * 1024
MAX_ENTRIES = 100
# Maximum number of dots in a line: the run time of tomllib grows with the square of the number of
# parts of a key.
MAX_DOTS = 200
_SECTIONS = ("environment", "resource_slots", "environ")
# The architecture is accepted, but the agents determine it.
_ENVIRONMENT = ("image", "architecture")
_LINE = re.compile(r"\(at line (\d+)")


def parse_service_definition(text: str, variant: str) -> dict[str, Any]:
    """Return the fields of the replicas' sessions that the file sets for a runtime variant.

    The run time grows with the size of the text, so call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not valid TOML, exceeds a limit, or has an unknown or invalid key; ``line``
        in the details is the line of the problem.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise _problem(1, f"the file has more than {MAX_BYTES} bytes")
    for number, content in enumerate(text.split("\n"), 1):
        if content.count(".") > MAX_DOTS:
            raise _problem(number, f"the line has more than {MAX_DOTS} dots")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise _problem(line, str(error).partition(" (at ")[0]) from None
    except RecursionError:
        raise _problem(1, "values are nested too deeply") from None
    except ValueError:
        raise _problem(1, "a number has too many digits") from None
    section = document.get(variant, {})
    if not isinstance(section, Mapping):
        raise _problem(_line_of(text, variant), f"{variant} must be a table")
    if unknown := [key for key in section if key not in _SECTIONS]:
        name = f"{variant}.{unknown[0]}"
        raise _problem(
            _line_of(text, name), f"{shown(name)!r} is not known; use {', '.join(_SECTIONS)}"
        )
    tables = {
        name: _Table(text, f"{variant}.{name}").read(section.get(name, {})) for name in _SECTIONS
    }
    environment = tables["environment"]
    if unknown := [key for key in environment if key not in _ENVIRONMENT]:
        line = _line_of(text, f"{variant}.environment", unknown[0])
        raise _problem(line, f"{shown(unknown[0])!r} is not known; use image")
    fields = {
        "image": environment.get("image"),
        "resources": tables["resource_slots"],
        "environ": tables["environ"],
    }
    return {name: value for name, value in fields.items() if value}


class _Table:
    """A table of the file with texts or numbers as values."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def read(self, values: Any) -> dict[str, str]:
        if not isinstance(values, Mapping):
            raise _problem(_line_of(self._text, self._name), f"{self._name} must be a table")
        # Without quotes, the key cuda.shares is a table cuda with the key shares.
        flat: dict[str, Any] = {}
        for key, value in values.items():
            if isinstance(value, Mapping):
                flat |= {f"{key}.{inner}": each for inner, each in value.items()}
            else:
                flat[key] = value
        if len(flat) > MAX_ENTRIES:
            raise _problem(
                _line_of(self._text, self._name), f"{self._name} has more than {MAX_ENTRIES} keys"
            )
        return {key: self._text_of(key, value) for key, value in flat.items()}

    def _text_of(self, key: str, value: Any) -> str:
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        try:
            found = str(value) if is_plain else ""
        except ValueError:  # Python refuses to convert a number with more than 4300 digits to text
            is_plain = False
        if not is_plain or "\0" in found or len(found) > MAX_TEXT or len(key) > MAX_TEXT:
            raise _problem(
                _line_of(self._text, self._name, key),
                f"{shown(key)!r} must be a string or a number of at most {MAX_TEXT} characters",
            )
        return found


def _line_of(text: str, section: str, key: str = "") -> int:
    """Return the line of a table or of a key in it; 1 if the line is not found."""
    line_of_section = 0
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip().replace('"', "").replace("'", "")
        if plain.startswith("["):
            if plain.startswith((f"[{section}]", f"[{section}.")):
                line_of_section = line_of_section or number
            elif line_of_section:
                break
        elif line_of_section and key and plain.partition("=")[0].strip() == key:
            return number
    return line_of_section or 1


def _problem(line: int, text: str) -> InvalidRequest:
    return InvalidRequest(f"{FILE_NAME}, line {line}: {text}", field="definition_file", line=line)
