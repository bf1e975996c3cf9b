"""Mappings of a YAML file; every problem is reported with its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import yaml

from .bounded_yaml import BoundedLoader
from .errors import InvalidRequest
from .user_input import shown

MAX_TEXT = 512

T = TypeVar("T")
# Function that returns the error for a line and a text.
Problem = Callable[[int, str], InvalidRequest]


@dataclass(slots=True)
class Section:
    """A mapping of the file; ``take_…`` removes a key, ``finish`` raises if keys remain.

    ``problem`` creates the errors.
    """

    loader: BoundedLoader
    name: str
    line: int
    nodes: dict[str, tuple[yaml.Node, yaml.Node]]
    problem: Problem

    @classmethod
    def of(
        cls,
        loader: BoundedLoader,
        node: yaml.Node,
        name: str,
        problem: Problem,
    ) -> Section:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise problem(line, f"{name} must be a mapping of keys and values")
        nodes: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            key_line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or not is_encodable(key.value):
                raise problem(key_line, f"a key of {name} is not a string")
            if key.value in nodes:
                raise problem(key_line, f"{name} has the key {shown(key.value)} twice")
            nodes[key.value] = (key, value)
        return cls(loader, name, line, nodes, problem)

    def take(self, key: str) -> yaml.Node | None:
        pair = self.nodes.pop(key, None)
        if pair is None or pair[1].tag == "tag:yaml.org,2002:null":
            return None
        return pair[1]

    def take_section(self, key: str) -> Section | None:
        node = self.take(key)
        return None if node is None else Section.of(self.loader, node, key, self.problem)

    def take_text(self, key: str, limit: int = MAX_TEXT) -> str:
        node = self.take(key)
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            raise self.problem(node.start_mark.line + 1, f"{key} must be a string")
        return text_of(node, key, limit, self.problem)

    def take_number(self, key: str, default: float, lowest: float, highest: float) -> float:
        node = self.take(key)
        if node is None:
            return default
        value = self.loader.construct_object(node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not lowest <= value <= highest:
            raise self.problem(
                node.start_mark.line + 1, f"{key} must be a number from {lowest:g} to {highest:g}"
            )
        return float(value)

    def take_whole(self, key: str, default: int, lowest: int, highest: int) -> int:
        line = self.line_of(key)
        value = self.take_number(key, default, lowest, highest)
        if value != int(value):
            raise self.problem(line, f"{key} must be a whole number")
        return int(value)

    def take_bool(self, key: str) -> bool:
        node = self.take(key)
        value = False if node is None else self.loader.construct_object(node)
        if not isinstance(value, bool):
            raise self.problem(
                node.start_mark.line + 1 if node else 1, f"{key} must be true or false"
            )
        return value

    def line_of(self, key: str) -> int:
        pair = self.nodes.get(key)
        return self.line if pair is None else pair[0].start_mark.line + 1

    def finish(self) -> None:
        for name, (key, _) in self.nodes.items():
            raise self.problem(key.start_mark.line + 1, f"{self.name} has no key {shown(name)!r}")


def read_sections(
    text: str,
    max_bytes: int,
    max_nodes: int,
    problem: Problem,
    read: Callable[[Section], T],
) -> T:
    """Parse a YAML text that is a mapping, and return the result of ``read`` for this mapping.

    Raises
    ------
    InvalidRequest
        The error from ``problem``, if the text is not valid YAML or exceeds a limit.
    """
    if len(text.encode(errors="replace")) > max_bytes:
        raise problem(1, f"the file has more than {max_bytes} bytes")
    try:
        loader = BoundedLoader(text, max_nodes)
        try:
            root = loader.get_single_node()
            if root is None:
                raise problem(1, "the file is empty")
            return read(Section.of(loader, root, "the file", problem))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise problem(mark.line + 1 if mark else 1, error.problem or "not valid YAML") from None
    except yaml.YAMLError:
        raise problem(1, "the file has characters that YAML does not allow") from None


def text_of(node: yaml.ScalarNode, what: str, limit: int, problem: Problem) -> str:
    """Return the text of a value; raise an error if it has more than ``limit`` bytes."""
    text = str(node.value)
    if len(text.encode(errors="replace")) > limit or "\0" in text:
        raise problem(node.start_mark.line + 1, f"{what} has more than {limit} bytes, or a NUL")
    if not is_encodable(text):
        raise problem(node.start_mark.line + 1, f"{what} has characters that are not valid")
    return text


def is_encodable(text: str) -> bool:
    """Return whether a text has no halves of surrogate pairs, which UTF-8 cannot represent."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
