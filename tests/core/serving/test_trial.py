"""The message of a failed trial: one sentence for each cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.coded_text import TextTemplate
from bai_services.core.serving.definition import HealthCheck
from bai_services.core.serving.trial import (
    MAX_LOG_CHARS,
    MAX_LOG_LINES,
    MAX_PENDING_SECONDS,
    MAX_START_SECONDS,
    Answer,
    Check,
    Observation,
    cause_in_log,
    explain,
    last_lines,
)
from bai_services.core.sessions.lifecycle import Status

HEALTH = HealthCheck(path="/ready", timeout_seconds=5, start_seconds=60)
RUNNING = Observation(Status.RUNNING, 60, HEALTH)
NO_IMAGE = (
    "the image could not be pulled; check its name, its tag and the credentials of its registry"
)
NO_REGISTRY = "image a:1 is not on the machine and its registry does not respond: dial tcp"
ENDED = Observation(Status.TERMINATED, 1, HEALTH)


@pytest.mark.parametrize(
    ("seen", "text", "is_healthy"),
    [
        (Observation(None, 0), "the session of the trial no longer exists", False),
        (Observation(Status.PENDING, 1), "the session is starting", None),
        (
            Observation(Status.PENDING, 1, message="no quota"),
            "the session waits for resources: no quota",
            None,
        ),
        (
            Observation(Status.PENDING, MAX_PENDING_SECONDS, message="no GPU"),
            "no resources within 10min: no GPU",
            False,
        ),
        (Observation(Status.PREPARING, 1), "the session is starting", None),
        (
            Observation(Status.PREPARING, MAX_START_SECONDS, message="stuck"),
            "the session could not be started: stuck",
            False,
        ),
        (replace(RUNNING, check=Check(Answer.STATUS, 200)), "healthy after 1min", True),
        (replace(RUNNING, seconds=3), "the replica cannot be reached", None),
        (
            replace(RUNNING, check=Check(Answer.REFUSED)),
            "no program listens on $BAI_SERVICE_PORT after 1min of 1min",
            False,
        ),
        (
            replace(RUNNING, check=Check(Answer.REFUSED, listening=(8000, 9000))),
            "the server listens on port 8000, 9000, but not on $BAI_SERVICE_PORT: pass it the "
            "port from this variable",
            False,
        ),
        (
            replace(RUNNING, check=Check(Answer.STATUS, 404)),
            "the server has no /ready (status 404): set the health path to one that it has",
            False,
        ),
        (
            replace(RUNNING, check=Check(Answer.STATUS, 500)),
            "the health check /ready returned status 500 instead of 200",
            False,
        ),
        (
            replace(RUNNING, check=Check(Answer.TIMEOUT)),
            "the health check /ready was not answered within 5s",
            False,
        ),
        (
            replace(RUNNING, check=Check(Answer.NO_HTTP)),
            "the server closed the connection, or does not speak HTTP",
            False,
        ),
        (
            Observation(Status.TERMINATING, 1),
            "the session of the trial is ending",
            None,
        ),
        (
            replace(ENDED, exit_code=127),
            "the command, or one in it, was not found (exit code 127): check its name and the "
            "image",
            False,
        ),
        (
            replace(ENDED, exit_code=126),
            "the command could not be executed (exit code 126): check the permissions of the file",
            False,
        ),
        (
            replace(ENDED, exit_code=1),
            "the command ended with exit code 1; the log shows why",
            False,
        ),
        (
            replace(ENDED, exit_code=0),
            "the command ended without an error: it must run as long as the server, not in the "
            "background",
            False,
        ),
        (
            replace(ENDED, exit_code=1, code=TextTemplate.OUT_OF_MEMORY.code),
            "the server was killed for exceeding its memory: request more memory",
            False,
        ),
        (
            replace(ENDED, exit_code=137),
            "the server was killed (exit code 137), often because it needed more memory than its "
            "limit: request more memory, or see the log",
            False,
        ),
        (
            Observation(Status.ERROR, 1, message="Pull of x: manifest unknown"),
            f"{NO_IMAGE}: Pull of x: manifest unknown",
            False,
        ),
        (
            Observation(Status.ERROR, 1, message=NO_REGISTRY),
            f"{NO_IMAGE}: {NO_REGISTRY}",
            False,
        ),
        (
            Observation(Status.ERROR, 1, message="the Hub is busy"),
            "the session could not be started: the Hub is busy",
            False,
        ),
    ],
)
def test_sentence_of_each_cause(seen: Observation, text: str, is_healthy: bool | None) -> None:
    found = explain(seen)
    assert (str(found.text), found.is_healthy) == (text, is_healthy)


@given(
    status=st.none() | st.sampled_from(Status),
    code=st.none() | st.integers(0, 255),
    check=st.none()
    | st.builds(Check, st.sampled_from(Answer), st.integers(100, 599), st.just((8000,))),
    message=st.text(max_size=20),
)
def test_every_trial_ends(
    status: Status | None, code: int | None, check: Check | None, message: str
) -> None:
    seen = Observation(status, 10**6, HEALTH, message or "m", "", code, check)
    found = explain(seen)
    assert found.is_healthy is not None
    assert str(found.text)
    if found.is_healthy:
        assert status is Status.RUNNING


def test_log_is_bounded() -> None:
    text = last_lines("\n".join(f"line {n}\0" for n in range(100)))
    assert text.splitlines()[-1] == "line 99"
    assert len(text.splitlines()) == MAX_LOG_LINES
    assert len(last_lines("x" * 100_000)) == MAX_LOG_CHARS


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'onnx.x'\n",
            "the Python package onnx is missing: choose an image that has it, or install it before "
            "the server starts",
        ),
        (
            "/usr/bin/python3: No module named vllm\n",
            "the Python package vllm is missing: choose an image that has it, or install it before "
            "the server starts",
        ),
        (
            "/usr/bin/python3: Error while finding module specification for 'vllm.server' "
            "(ModuleNotFoundError: No module named 'vllm')",
            "the Python package vllm is missing: choose an image that has it, or install it before "
            "the server starts",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
            "the GPU memory is not enough for the model: request more GPU memory, or choose a "
            "smaller model or context length",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/nope'", None),
        ("", None),
    ],
)
def test_known_causes_in_the_output_of_a_server(log: str, text: str | None) -> None:
    found = cause_in_log(log)
    assert (None if found is None else str(found)) == text
