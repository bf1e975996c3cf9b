"""Mappings of a YAML file; every problem is reported with its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import yaml

from .bounded_yaml import BoundedLoader
from .coded_text import CodedText, refusal
from .errors import InvalidRequest
from .refusal_texts import RefusalText
from .user_input import shown

MAX_TEXT = 512

T = TypeVar("T")
# Function that returns the error for a line and a text.
Problem = Callable[[int, CodedText], InvalidRequest]


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
            raise problem(line, refusal(RefusalText.NOT_A_MAPPING, name=name))
        nodes: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            key_line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or not is_encodable(key.value):
                raise problem(key_line, refusal(RefusalText.KEY_NOT_A_STRING, name=name))
            if key.value in nodes:
                raise problem(
                    key_line, refusal(RefusalText.KEY_TWICE, name=name, key=shown(key.value))
                )
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
            raise self.problem(node.start_mark.line + 1, refusal(RefusalText.NOT_A_STRING, key=key))
        return text_of(node, key, limit, self.problem)

    def take_number(self, key: str, default: float, lowest: float, highest: float) -> float:
        node = self.take(key)
        if node is None:
            return default
        value = self.loader.construct_object(node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not lowest <= value <= highest:
            raise self.problem(
                node.start_mark.line + 1,
                refusal(
                    RefusalText.NUMBER_OUT_OF_RANGE,
                    key=key,
                    lowest=f"{lowest:g}",
                    highest=f"{highest:g}",
                ),
            )
        return float(value)

    def take_whole(self, key: str, default: int, lowest: int, highest: int) -> int:
        line = self.line_of(key)
        value = self.take_number(key, default, lowest, highest)
        if value != int(value):
            raise self.problem(line, refusal(RefusalText.NOT_WHOLE, key=key))
        return int(value)

    def take_bool(self, key: str) -> bool:
        node = self.take(key)
        value = False if node is None else self.loader.construct_object(node)
        if not isinstance(value, bool):
            raise self.problem(
                node.start_mark.line + 1 if node else 1, refusal(RefusalText.NOT_A_BOOLEAN, key=key)
            )
        return value

    def line_of(self, key: str) -> int:
        pair = self.nodes.get(key)
        return self.line if pair is None else pair[0].start_mark.line + 1

    def finish(self) -> None:
        for name, (key, _) in self.nodes.items():
            raise self.problem(
                key.start_mark.line + 1,
                refusal(RefusalText.UNKNOWN_KEY, name=self.name, key=shown(name)),
            )


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
        raise problem(1, refusal(RefusalText.FILE_TOO_LONG, limit=max_bytes))
    try:
        loader = BoundedLoader(text, max_nodes)
        try:
            root = loader.get_single_node()
            if root is None:
                raise problem(1, refusal(RefusalText.FILE_EMPTY))
            return read(Section.of(loader, root, "the file", problem))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = refusal(RefusalText.YAML_SYNTAX, message=error.problem or "?")
        raise problem(mark.line + 1 if mark else 1, message) from None
    except yaml.YAMLError:
        raise problem(1, refusal(RefusalText.YAML_CHARACTERS)) from None


def text_of(node: yaml.ScalarNode, what: str, limit: int, problem: Problem) -> str:
    """Return the text of a value; raise an error if it has more than ``limit`` bytes."""
    text = str(node.value)
    if len(text.encode(errors="replace")) > limit or "\0" in text:
        raise problem(
            node.start_mark.line + 1, refusal(RefusalText.TEXT_TOO_LONG, name=what, limit=limit)
        )
    if not is_encodable(text):
        raise problem(node.start_mark.line + 1, refusal(RefusalText.TEXT_CHARACTERS, name=what))
    return text


def is_encodable(text: str) -> bool:
    """Return whether a text has no halves of surrogate pairs, which UTF-8 cannot represent."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
