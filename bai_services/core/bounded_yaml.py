"""YAML loader for untrusted files: limits nesting depth, value count and number length."""

from __future__ import annotations

from typing import IO, Any

import yaml

from .user_input import MAX_NUMBER_CHARACTERS

MAX_DEPTH = 64
# Counted with aliases expanded: a few lines can expand to billions of values.
MAX_NODES = 1_000_000
_TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class BoundedLoader(yaml.SafeLoader):
    """A ``SafeLoader`` that raises ``MarkedYAMLError`` if a file exceeds a limit."""

    def __init__(self, stream: str | IO[str], max_nodes: int = MAX_NODES) -> None:
        super().__init__(stream)
        self._max_nodes = max_nodes
        self._depth = self._count = 0
        # Number of values in each complete node, with aliases expanded; the key is id(node).
        self._sizes: dict[int, int] = {}

    def fetch_more_tokens(self) -> Any:
        mark = self.get_mark()
        # The scanner reads up to 1,024 tokens ahead and takes quadratic time in the open brackets.
        if self.flow_level > MAX_DEPTH:
            raise _error(_TOO_DEEP, mark)
        try:
            return super().fetch_more_tokens()
        except (ValueError, OverflowError):
            # For example "\UFFFFFFFF".
            raise _error(
                "a number that is too large, or an escape sequence that is not a character", mark
            ) from None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            node: yaml.Node | None = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise _error("an alias inside its own anchor", event.start_mark)
            self._count += self._sizes[id(node)]
        else:
            before = self._count
            self._count += 1
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise _error(_TOO_DEEP, event.start_mark)
            node = super().compose_node(parent, index)
            self._depth -= 1
            self._sizes[id(node)] = self._count - before
        if self._count > self._max_nodes:
            raise _error(f"more than {self._max_nodes} values, aliases included", event.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER_CHARACTERS:
            raise _error(f"a number of more than {MAX_NUMBER_CHARACTERS} characters", node)
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            # For example 2026-13-01, which looks like a date.
            raise _error(f"{node.value[:40]!r} cannot be read: {error}", node) from None
        except (LookupError, AttributeError):
            # For example !!bool abc.
            kind = node.tag.rpartition(":")[2]
            raise _error(f"{node.value[:40]!r} is not a valid {kind}", node) from None


def _error(problem: str, at: Any) -> yaml.MarkedYAMLError:
    mark = at.start_mark if isinstance(at, yaml.Node) else at
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def load_yaml(stream: str | IO[str]) -> Any:
    """Return the value of a YAML or JSON text that contains a single document.

    Raises
    ------
    yaml.YAMLError
        If the text is not valid YAML, or exceeds a limit of this module.
    """
    # Safe: BoundedLoader is a SafeLoader and constructs only plain values.
    return yaml.load(stream, Loader=BoundedLoader)
