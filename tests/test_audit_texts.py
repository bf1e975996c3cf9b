"""The web UI has a text for each action and outcome in the audit log."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bai_services.core import errors
from bai_services.core.accounts.roles import ACTIONS

ROOT = Path(__file__).parents[1]
TEXTS = json.loads(
    (ROOT / "bai_services/webui/frontend/src/i18n/en/audit-log.json").read_text(encoding="utf-8")
)
ENTITIES = {key.removeprefix("entity-") for key in TEXTS if key.startswith("entity-")}
# Keys of other texts.
NOT_ACTIONS = frozenset({"mail.footer"})


def nodes_of_managers() -> Iterator[ast.AST]:
    for package in ("manager", "db"):
        for path in (ROOT / "bai_services" / package).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def actions_in_code() -> set[str]:
    """Return the strings in the manager and the database layer such as ``user.create``."""
    texts = {node.value for node in nodes_of_managers() if isinstance(node, ast.Constant)}
    return {
        text
        for text in texts - NOT_ACTIONS
        if isinstance(text, str)
        and re.fullmatch(r"[a-z-]+\.[a-z-]+", text)
        and text.partition(".")[0] in ENTITIES
    }


def verbs_in_code() -> set[str]:
    """Return the verbs that methods such as ``_entry`` append to the name of an object."""
    return {
        argument.value
        for node in nodes_of_managers()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("_entry", "_change")
        for argument in node.args[1:]
        if isinstance(argument, ast.Constant)
        and isinstance(argument.value, str)
        and re.fullmatch(r"[a-z-]+", argument.value)
    }


def test_each_action_has_a_text() -> None:
    # A rejected change has the name of the permission as its action.
    actions = actions_in_code() | set(ACTIONS)
    assert len(actions) > 200
    entities = {action.partition(".")[0] for action in actions}
    verbs = {action.partition(".")[2] for action in actions} | verbs_in_code()
    assert verbs > {"create", "request-publication", "set-dotfile"}
    keys = {f"entity-{entity}" for entity in entities} | {f"verb-{verb}" for verb in verbs}
    assert keys - TEXTS.keys() == set()


def test_each_outcome_has_a_text() -> None:
    codes = {
        error.code
        for error in vars(errors).values()
        if isinstance(error, type)
        and issubclass(error, errors.BaiError)
        and error is not errors.BaiError
    }
    assert codes > {"forbidden", "sign-in-refused"}
    assert {code for code in codes | {"done"} if f"outcome-{code}" not in TEXTS} == set()
