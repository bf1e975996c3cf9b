"""The root command: help, usage errors, exit codes and parsing of shared arguments."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bai_services.cli import failures
from bai_services.cli.command import parse_pairs, segment
from bai_services.cli.main import COMMANDS, main
from bai_services.cli.sessions.spec_options import parse_mount
from bai_services.cli.text import json_text, printable, printable_log
from bai_services.core import errors

EXPECTED_CODES = {
    "error": 1,
    "invalid-request": 2,
    "invalid-transition": 1,
    "checksum-mismatch": 2,
    "not-signed-in": 5,
    "sign-in-refused": 5,
    "sign-in-blocked": 5,
    "forbidden": 5,
    "not-found": 4,
    "conflict": 1,
    "already-exists": 1,
    "in-use": 1,
    "changed": 1,
    "quota-exceeded": 3,
    "insufficient-resources": 3,
    "rate-limited": 1,
    "too-large": 1,
    "storage-full": 1,
    "unavailable": 6,
}


@pytest.fixture(autouse=True)
def not_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BAI_URL", "BAI_TOKEN", "BAI_ACCESS_KEY", "BAI_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BAI_CONFIG_DIR", str(tmp_path))


def test_every_error_has_the_expected_exit_code() -> None:
    codes = {code: failures.exit_code(cls("message")) for code, cls in errors.by_code().items()}
    assert codes == EXPECTED_CODES


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_deferred_command_can_be_imported(name: str) -> None:
    deferred = COMMANDS[name]
    module = importlib.import_module(f"bai_services.cli.{deferred.module}")
    assert isinstance(getattr(module, deferred.name), click.Command)


def test_help_imports_no_slow_modules() -> None:
    code = (
        "import sys; from bai_services.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('httpx', 'rich', 'yaml', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["session", "create"],
        ["session", "create", "a", "-r", "cpu"],
        ["session", "create", "a", "-r", "cpu=much"],
        ["session", "create", "a", "-r", "cpu=1", "-r", "cpu=2"],
        ["session", "create", "a", "-r", "cuda.shares=0.333"],
        ["session", "create", "a", "-r", "what=1"],
        ["session", "create", "a", "--mount", "data:/home/work/data:rx"],
        ["session", "create", "a", "-e", "SEED"],
        ["session", "create", "a", "--shared-memory", "big"],
        ["session", "create", "a", "--timeout", "-1"],
        ["vfolder", "upload", "data", "/no/such/file"],
        ["vfolder", "share", "data", "ann", "--permission", "all"],
        ["admin", "domain", "create"],
        ["admin", "agent", "create", "a"],
        ["admin", "group", "link", "gpu", "planet", "earth"],
        ["admin", "policy", "create", "a", "--max-priority", "high"],
        ["apply"],
        ["login", "http://hub.example", "--password-stdin"],
        ["login", "http://hub.example", "--user", "a", "--access-key", "b"],
        ["login", "http://hub.example", "--user", "a"],
        ["login", "hub.example", "--user", "a", "--password-stdin"],
    ],
    ids=" ".join,
)
def test_usage_error_has_exit_code_2_and_causes_no_request(arguments: list[str]) -> None:
    plain = CliRunner().invoke(main, arguments)
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert plain.stderr.splitlines()[-1].startswith("error: ")
    as_json = CliRunner().invoke(main, [*arguments, "--json"])
    assert (as_json.exit_code, as_json.stdout) == (2, "")
    document = json.loads(as_json.stderr)
    assert set(document) == {"error", "message", "details"}
    assert document["error"] == "invalid-request"


def test_error_without_sign_in_has_a_hint() -> None:
    result = CliRunner().invoke(main, ["session", "ls"])
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr == "error: not signed in to any hub\nsign in with: bai login URL\n"


def test_invalid_utf8_is_rejected() -> None:
    command = [sys.executable, "-m", "bai_services.cli.main", "session", "info", b"\xff"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not valid UTF-8" in done.stderr


def test_closed_pipe_prints_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "bai_services.cli.main", "session", "create", "--help"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (failures.FAILED, "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lab", "lab"),
        ("a/b", "a%2Fb"),
        ("a b?c#d%", "a%20b%3Fc%23d%25"),
        ("über", "%C3%BCber"),
        ("..", "%2E%2E"),
        (".hidden", ".hidden"),
    ],
)
def test_name_is_encoded_as_one_path_segment(name: str, expected: str) -> None:
    assert segment(name) == expected


def test_empty_name_is_rejected() -> None:
    with pytest.raises(errors.InvalidRequest):
        segment("")


def test_value_of_a_pair_may_contain_equals_signs() -> None:
    assert parse_pairs(("A=b=c", "D="), "-e", "") == {"A": "b=c", "D": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data", {"vfolder": "data"}),
        ("data:/home/work/data", {"vfolder": "data", "path": "/home/work/data"}),
        ("data::ro", {"vfolder": "data", "permission": "ro"}),
        ("data:/a:rw", {"vfolder": "data", "path": "/a", "permission": "rw"}),
        ("data/raw/2024", {"vfolder": "data", "subpath": "raw/2024"}),
        (
            "data/raw:/in:ro",
            {"vfolder": "data", "subpath": "raw", "path": "/in", "permission": "ro"},
        ),
        ("data/", {"vfolder": "data"}),
    ],
)
def test_mount_is_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_mount(text) == expected


@pytest.mark.parametrize("text", ["", ":/a", "a:b:c:d", "data:/a:x", "/raw", "/raw:/in"])
def test_invalid_mount_is_rejected(text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="is not FOLDER"):
        parse_mount(text)


def test_printable_replaces_control_characters() -> None:
    assert printable("a\x1b[2Jb\u202ec\nd\te") == "a\ufffd[2Jb\ufffdc\nd\te"


def test_log_on_a_terminal_keeps_colours_but_no_other_escape_sequences() -> None:
    log = "\x1b[1;31mred\x1b[0m\x1b[2J 10%\r20%\x1b]0;owned\x07 \x9b1Aend\u202e\n"
    expected = "\x1b[1;31mred\x1b[0m\ufffd[2J 10%\r20%\ufffd]0;owned\ufffd \ufffd1Aend\ufffd\n"
    assert printable_log(log) == expected


@given(st.text(), st.sampled_from([None, 2]))
def test_json_output_keeps_the_value_and_is_printable(text: str, indent: int | None) -> None:
    document = json_text({"name": text}, indent=indent)
    assert json.loads(document) == {"name": text}
    assert printable(document) == document


@pytest.mark.parametrize("words", [[], ["session"], ["admin", "domain"]])
def test_group_without_command_prints_its_help_once(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert (done.stderr.count("Usage:"), "error:" in done.stderr) == (1, False)
    assert "Commands:" in done.stderr
