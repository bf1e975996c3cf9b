"""Triggers that run a pipeline: signed requests, files in a folder, runs of other pipelines."""

from __future__ import annotations

import fnmatch
import hmac
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from ..coded_text import CodedText, refusal
from ..errors import InvalidRequest, NotSignedIn
from ..refusal_texts import RefusalText
from ..sessions.callbacks import signature
from ..user_input import shown
from .definition import Value
from .parameters import given_value, reference_of
from .states import RunStatus

MAX_TRIGGERS_PER_PIPELINE = 20
# Maximum number of a user's file triggers, because each one searches a folder every few seconds.
MAX_FILE_TRIGGERS_PER_USER = 50
MAX_CALL_BYTES = 64 * 1024
# Accepted difference between the timestamp of a call and the current time.
WINDOW_SECONDS = 300
MAX_PATTERN = 255
MAX_LEVELS = 8
MAX_WILDCARDS = 20
# Maximum number of entries that a scan of a folder reads, and of files that match its pattern.
MAX_SCANNED = 10_000
MAX_MATCHES = 1000
_WILDCARDS = "*?["
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NAMESPACE = uuid.UUID("b2a5a3b8-6a0c-4f0c-9d4f-1c1f0c2f7f10")


class TriggerKind(StrEnum):
    WEBHOOK = "webhook"  # a signed request of another service
    FILE = "file"  # a file that appears in a folder
    PIPELINE = "pipeline"  # the end of a run of another pipeline


class RunResult(StrEnum):
    """The results of a run of another pipeline that fire a trigger."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"  # also a cancelled run


# A parameter with the value ``$NAME`` gets a value of the event.
REFERENCES: Mapping[TriggerKind, Sequence[str]] = {
    TriggerKind.WEBHOOK: (),
    TriggerKind.FILE: ("FILE",),
    TriggerKind.PIPELINE: ("RUN", "STATUS"),
}


def check_call(secret: str, timestamp: str, given: str, body: bytes, now: datetime) -> None:
    """Check the signature of a call, in constant time.

    Raises
    ------
    NotSignedIn
        If the signature or the timestamp is not valid.
    """
    is_timestamp = _TIMESTAMP.fullmatch(timestamp) is not None
    seconds = int(timestamp) if is_timestamp else 0
    expected = signature(secret, seconds, body)
    is_match = hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
    is_recent = abs(now.timestamp() - seconds) <= WINDOW_SECONDS
    if not (is_timestamp and is_match and is_recent):
        raise NotSignedIn(
            "there is no such trigger, or the signature is not valid, or its time differs by more "
            f"than {WINDOW_SECONDS} s"
        )


def run_id_of(trigger_id: str, event: str) -> str:
    """Return the id of the run of an event; a repeated event has the same id."""
    return str(uuid.uuid5(_NAMESPACE, f"{trigger_id}/{event}"))


def parse_pattern(text: str) -> list[re.Pattern[str]]:
    """Return the pattern of each level of the paths of files, such as ``inbox/*.csv``.

    ``*``, ``?`` and ``[…]`` match characters of a name. A name that begins with a dot matches only
    a level that also begins with a dot, because programs use such names for incomplete files.

    Raises
    ------
    InvalidRequest
        If the pattern is not relative to the folder, or exceeds a limit.
    """
    levels = text.split("/")
    if not text or len(text) > MAX_PATTERN or len(levels) > MAX_LEVELS:
        raise _pattern_problem(
            text, refusal(RefusalText.PATTERN_LENGTH, limit=MAX_PATTERN, levels=MAX_LEVELS)
        )
    if any(level in ("", ".", "..") for level in levels) or "\0" in text or "**" in text:
        raise _pattern_problem(text, refusal(RefusalText.PATTERN_NOT_RELATIVE))
    if sum(text.count(each) for each in _WILDCARDS) > MAX_WILDCARDS:
        raise _pattern_problem(text, refusal(RefusalText.PATTERN_WILDCARDS, limit=MAX_WILDCARDS))
    return [_level(level) for level in levels]


def _level(level: str) -> re.Pattern[str]:
    visible = "" if level.startswith(".") else r"(?!\.)"
    return re.compile(visible + fnmatch.translate(level))


def _pattern_problem(text: str, problem: CodedText) -> InvalidRequest:
    message = refusal(RefusalText.PATTERN_PROBLEM, problem, text=shown(text))
    return InvalidRequest(message, field="pattern")


def check_references(kind: TriggerKind, parameters: Mapping[str, Value]) -> None:
    """Check that parameters refer only to values that an event of this kind has.

    Raises
    ------
    InvalidRequest
        If a parameter refers to another value.
    """
    for name, value in parameters.items():
        source = reference_of(value)
        if source is not None and source not in REFERENCES[kind]:
            known = ", ".join(f"${each}" for each in REFERENCES[kind]) or "none"
            raise InvalidRequest(
                refusal(
                    RefusalText.TRIGGER_VALUE,
                    name=shown(name),
                    source=shown(source),
                    kind=kind,
                    known=known,
                ),
                field="parameters",
            )


def parameters_of(
    parameters: Mapping[str, Value], references: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the parameters of a run; ``references`` are the values of the event by name."""
    return {name: given_value(value, references) for name, value in parameters.items()}


def fires(result: RunResult, status: RunStatus) -> bool:
    """Return whether the end of a run with this status fires a trigger."""
    if result is RunResult.ANY:
        return True
    wanted = RunStatus.SUCCEEDED if result is RunResult.SUCCESS else RunStatus.FAILED
    return status is wanted


def chain(followers: Mapping[str, Iterable[str]], start: str, end: str) -> list[str]:
    """Return the shortest chain of pipelines from ``start`` to ``end``; empty: there is none.

    ``followers``: the pipelines that the runs of a pipeline trigger.
    """
    before: dict[str, str] = {start: ""}
    waiting = [start]
    for name in waiting:
        if name == end:
            break
        for each in followers.get(name, ()):
            if each not in before:
                before[each] = name
                waiting.append(each)
    if end not in before:
        return []
    found = [end]
    while before[found[-1]]:
        found.append(before[found[-1]])
    return found[::-1]
