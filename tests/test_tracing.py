"""Tracing of one process: off by default, content of spans, and receivers that do not respond."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services import tracing
from bai_services.span_content import ATTRIBUTES, MAX_TEXT_CHARACTERS, checked, redacted
from tests.test_app import is_up, manager_process
from tests.test_docs import python_files
from tests.testbed.ports import free_port
from tests.testbed.trace_receiver import receiving_traces
from tests.testbed.wait import wait_until

ROOT = Path(__file__).resolve().parents[1]
# The maximum for the end of a process, on a loaded machine, while the receiver does not respond.
END_SECONDS = 15


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("BAI_", "OTEL_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_opentelemetry_is_not_imported_while_tracing_is_off() -> None:
    ended = run(
        "import sys\n"
        "from bai_services import tracing\n"
        "tracing.set_up('bai-manager', {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1'})\n"
        "with tracing.span('a') as span, tracing.step('b'):\n"
        "    span.fail('no')\n"
        "headers = {}\n"
        "tracing.inject(headers)\n"
        "assert headers == {} and tracing.traceparent() is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")


def test_only_one_module_imports_opentelemetry() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for package in ("bai_auth", "bai_labext", "bai_services", "bai_spawner")
        for path in python_files(ROOT / package)
        if re.search(r"^\s*(?:from|import) (?:opentelemetry|.*tracing_sdk)", path.read_text(), re.M)
    }
    assert importers == {"bai_services/tracing.py", "bai_services/tracing_sdk.py"}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param({"BAI_TRACING": "yes"}, "BAI_TRACING must be 0 or 1", id="unknown value"),
        pytest.param(
            {"BAI_TRACING": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "must be http/protobuf",
            id="gRPC",
        ),
        pytest.param(
            {"BAI_TRACING": "1", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "OTEL_", id="invalid queue"
        ),
    ],
)
def test_invalid_variables_are_reported_at_the_start(environ: dict[str, str], message: str) -> None:
    script = "import os\nfrom bai_services import tracing\ntracing.set_up('x', os.environ)\n"
    ended = run(script, **environ)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_missing_packages_are_reported_at_the_start() -> None:
    script = (
        "import os, sys\nsys.modules['opentelemetry'] = None\n"
        "from bai_services import tracing\ntracing.set_up('x', os.environ)\n"
    )
    ended = run(script, BAI_TRACING="1")
    assert "pip install 'bai-hub[otel]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sdk_can_be_disabled_by_its_own_variable() -> None:
    script = (
        "import os\nfrom bai_services import tracing\n"
        "tracing.set_up('x', os.environ)\nprint(tracing.is_on())\n"
    )
    assert run(script, BAI_TRACING="1", OTEL_SDK_DISABLED="true").stdout.strip() == "False"
    assert run(script, BAI_TRACING="1").stdout.strip() == "True"


WORK = """
import os
from datetime import UTC, datetime, timedelta
from bai_services import tracing
from bai_services.core.errors import Unavailable
tracing.set_up("bai-agent", os.environ, "a1")
with tracing.span("outer", attributes={"bai.role": "user", "user.name": "ann"}):
    with tracing.step("inner"):
        headers = {}
        tracing.inject(headers)
    try:
        with tracing.span("failed", hidden=("ann",)):
            raise Unavailable("the folder of ann is not available; token=abc ann@example.org")
    except Unavailable:
        pass
    try:
        with tracing.span("bug"):
            raise RuntimeError("password")
    except RuntimeError:
        pass
now = datetime.now(UTC)
parent = tracing.with_span_id(headers["traceparent"], "00000000000000f1")
tracing.record("known id", parent=parent, span_id="00000000000000f2",
               started_at=now, ended_at=now + timedelta(seconds=2))
with tracing.step("without a current span"):
    pass
"""


def test_spans_are_received_at_the_end_of_the_process() -> None:
    with receiving_traces() as receiver:
        environ = {**receiver.environment, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
        ended = run(WORK, **environ)
        assert (ended.returncode, ended.stderr) == (0, "")
        spans = {span.name: span for span in receiver.spans()}
    assert sorted(spans) == ["bug", "failed", "inner", "known id", "outer"]
    outer = spans["outer"]
    assert (outer.service, outer.parent) == ("bai-agent", "")
    assert outer.attributes == {"bai.role": "user"}
    assert {span.trace for span in spans.values()} == {outer.trace}
    assert {spans[name].parent for name in ("inner", "failed", "bug")} == {outer.id}
    known = spans["known id"]
    assert (known.parent, known.id) == ("00000000000000f1", "00000000000000f2")
    assert known.ends_at - known.starts_at == 2_000_000_000
    failed = spans["failed"]
    assert failed.is_error and failed.attributes == {"error.type": "unavailable"}
    assert failed.message == "the folder of [user] is not available; [removed] [removed]"
    assert (spans["bug"].is_error, spans["bug"].message) == (True, "internal error")
    assert not outer.is_error


def test_sampler_of_the_standard_variables_applies() -> None:
    with receiving_traces() as receiver:
        ended = run(WORK, **receiver.environment, OTEL_TRACES_SAMPLER="parentbased_always_off")
        assert (ended.returncode, receiver.spans()) == (0, [])


FLOOD = """
import os, time
from bai_services import tracing
tracing.set_up("bai-agent", os.environ)
began = time.monotonic()
for number in range(20_000):
    with tracing.span("work"):
        pass
print(time.monotonic() - began)
"""


def test_hanging_receiver_loses_spans_and_delays_nothing() -> None:
    with receiving_traces() as receiver:
        receiver.may_respond.clear()
        began = time.monotonic()
        ended = run(FLOOD, **receiver.environment, OTEL_BSP_MAX_QUEUE_SIZE="1000")
        assert ended.returncode == 0, ended.stderr
        assert receiver.waiting.is_set()
        assert time.monotonic() - began < END_SECONDS + float(ended.stdout)
        receiver.may_respond.set()
        wait_until(lambda: receiver.bodies, 10, "the request that waited")
        assert len(receiver.spans()) <= 1000


def test_unreachable_receiver_loses_spans_and_delays_nothing() -> None:
    began = time.monotonic()
    endpoint = f"http://127.0.0.1:{free_port()}"
    ended = run(FLOOD, BAI_TRACING="1", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - began < END_SECONDS + float(ended.stdout)


def test_manager_serves_and_stops_while_the_receiver_hangs(tmp_path: Path) -> None:
    port = free_port()
    with receiving_traces() as receiver:
        receiver.may_respond.clear()
        with manager_process(tmp_path, port, **receiver.environment) as process:
            wait_until(lambda: process.poll() is not None or is_up(port), 60, "the manager")
            wait_until(receiver.waiting.is_set, 30, "a request with spans")
            assert is_up(port)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert time.monotonic() - began < END_SECONDS


def test_only_valid_contexts_are_accepted() -> None:
    good = f"00-{'a' * 32}-{'b' * 16}-01"
    assert tracing.valid(good) == good
    for bad in (
        None, 1, "", good + "-x", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01",
        f"ff-{'a' * 32}-{'b' * 16}-01", good.upper(), good + "\n",
    ):  # fmt: skip
        assert tracing.valid(bad) is None


# Secrets as bai-hub, the Hub, and cloud providers generate them: 20 or more characters.
SECRETS = st.one_of(
    st.text("0123456789abcdef", min_size=32, max_size=64),
    st.text(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", min_size=24, max_size=60
    ).filter(lambda text: re.search(r"[A-Z0-9]", text) is not None),
)
WORDS = st.lists(
    st.sampled_from(["the", "image", "is", "missing", "on", "agent", "a1", "(exit", "code", "1)"]),
    max_size=8,
).map(" ".join)
FRAMES = st.sampled_from(
    ["{}", "token={}", "Bearer {}", "password: {}", "http://host/x?key={}", "https://u:{}@host/x"]
)


@given(WORDS, FRAMES, SECRETS, WORDS)
def test_no_secret_remains_in_a_reason(before: str, frame: str, secret: str, after: str) -> None:
    text = redacted(f"{before} {frame.format(secret)} {after}")
    assert secret not in text
    assert len(text) <= MAX_TEXT_CHARACTERS


@given(FRAMES, st.text("abcxyz019!$%&*#", min_size=1, max_size=15))
def test_no_short_password_remains_after_its_name(frame: str, password: str) -> None:
    if frame != "{}":
        assert redacted(frame.format(f"Q{password}Q")).count(f"Q{password}Q") == 0


@pytest.mark.parametrize(
    "text",
    [
        "agent gpu-node-17 is not responding; the session starts when the agent is back",
        "session 0b6f6d0e-7b0a-4c1e-9d7e-0a9f1c2d3e4f has no agent yet",
        "the image registry.example.org/ml/pytorch:2.4 is not on the chosen machine",
        "the server did not respond within 180 s",
    ],
)
def test_reasons_remain_readable(text: str) -> None:
    assert redacted(text) == text


def test_names_of_users_and_further_lines_are_removed() -> None:
    text = "folder of Ann.Lee: no access (ann.lee2)\nlast output: x"
    assert redacted(text, ("ann.lee",)) == "folder of [user]: no access (ann.lee2)"


def test_only_known_attributes_are_recorded() -> None:
    assert checked({"user.name": "ann", "bai.role": "user", "bai.image": None}) == {
        "bai.role": "user"
    }


def test_attributes_in_the_code_are_known_and_used() -> None:
    used: set[str] = set()
    for package in ("bai_services", "bai_spawner"):
        for path in python_files(ROOT / package):
            if path.name != "span_content.py" and "tracing" in (text := path.read_text()):
                used |= set(re.findall(r'"((?:bai|http|error)\.[a-z_.]+)":', text))
    labels_of_containers = {"bai.owner"}
    assert used - labels_of_containers == ATTRIBUTES
