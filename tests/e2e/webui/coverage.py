"""Compare the UI checklist with the tests, and print the implemented and tested items.

``checklist/PREFIX.toml`` gives the state of each item: ``built``, ``missing``, or
``later: reason``. A test names the items that it covers: ``@pytest.mark.checklist("SES-01")``.

Run ``python -m tests.e2e.webui.coverage``: it prints the items of each prefix. It fails if an item
that is built has no test, if a test names an item that is not built, or if a state is unknown.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


def states() -> dict[str, str]:
    """Return the state of every item."""
    state_by_item: dict[str, str] = {}
    for path in sorted((HERE / "checklist").glob("*.toml")):
        state_by_item |= tomllib.loads(path.read_text("utf-8"))
    return state_by_item


def names_by_item() -> dict[str, list[str]]:
    """Return the names of the tests of each item."""
    names: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "mark.checklist" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for item in _items(node):
                    names.setdefault(item, []).append(f"{path.name}::{node.name}")
    return names


def _items(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(
            "mark.checklist"
        ):
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def errors(states: dict[str, str], tests: dict[str, list[str]]) -> list[str]:
    """Return the errors: built items without a test, tests of items not built, unknown states."""
    problems = [
        f"{item} has the state {state!r}; use built, missing, or later: reason"
        for item, state in states.items()
        if state not in ("built", "missing") and not state.startswith("later: ")
    ]
    problems += [
        f"{item} is built, and no test has @pytest.mark.checklist({item!r})"
        for item, state in states.items()
        if state == "built" and item not in tests
    ]
    problems += [
        f"{', '.join(names)} covers {item}, whose state is {states.get(item, 'unknown')!r}"
        for item, names in tests.items()
        if states.get(item) != "built"
    ]
    return problems


def main() -> int:
    known, tests = states(), names_by_item()
    for prefix in dict.fromkeys(item.partition("-")[0] for item in known):
        items = {item: state for item, state in known.items() if item.startswith(prefix + "-")}
        built = [item for item, state in items.items() if state == "built"]
        print(f"{prefix}: {len(built)} of {len(items)} built")
        for item, state in items.items():
            print(f"  {item}  {', '.join(tests.get(item, [])) or state}")
    problems = errors(known, tests)
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
