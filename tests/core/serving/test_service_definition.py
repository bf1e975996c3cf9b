"""Parsing of `service-definition.toml`: the defaults of a variant, and line numbers in errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.service_definition import MAX_BYTES, parse_service_definition
from bai_services.core.serving.settings import with_defaults

FILE = """\
[vllm.environment]
image = "cr.example.com/vllm:1"
architecture = "x86_64"

[vllm.resource_slots]
cpu = 4
mem = "8g"
cuda.shares = 0.5

[vllm.environ]
HF_HUB_OFFLINE = "1"

[sglang.environment]
image = "other"
"""


def test_defaults_of_a_variant_are_parsed() -> None:
    found = parse_service_definition(FILE, "vllm")
    assert found == {
        "image": "cr.example.com/vllm:1",
        "resources": {"cpu": "4", "mem": "8g", "cuda.shares": "0.5"},
        "environ": {"HF_HUB_OFFLINE": "1"},
    }
    assert parse_service_definition(FILE, "custom") == {}
    request = with_defaults({"resources": {"cpu": "1"}, "priority": 3}, found)
    assert request["resources"] == {"cpu": "1", "mem": "8g", "cuda.shares": "0.5"}
    assert (request["image"], request["priority"]) == ("cr.example.com/vllm:1", 3)
    assert with_defaults({"image": "own"}, found)["image"] == "own"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[vllm.environment]\nimage = \n", 2, "Invalid value"),
        ("vllm = 3\n", 1, "vllm must be a table"),
        ("a = 1\n[vllm.mounts]\n", 2, "vllm.mounts' is not known"),
        ("[vllm.environment]\nimage = 'x'\ntag = 'y'\n", 3, "'tag' is not known"),
        ("[vllm]\nenvironment = 4\n", 1, "vllm.environment must be a table"),
        ("[vllm.resource_slots]\ncpu = 1\nmem = [1]\n", 3, "'mem' must be a string or a number"),
        ("[vllm.environ]\nA = 'b'\n\nDEBUG = true\n", 4, "'DEBUG' must be a string or a number"),
        ("x" * (MAX_BYTES + 1), 1, "more than"),
        ("a = " + "[" * 5000, 1, "nested too deeply"),
        ("a = " + "1" * 5000, 1, "too many digits"),
        ("[vllm.environ]\nA = 0x" + "f" * 5000, 2, "'A' must be a string or a number"),
        ("b = 1\n" + "a." * 30_000 + "a = 1", 2, "more than 200 dots"),
    ],
)
def test_problems_have_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        parse_service_definition(text, "vllm")
    assert caught.value.details["line"] == line


@given(st.text(alphabet="[]{}.=,\"'\\\n vlmenviro1#\x00", max_size=120))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_service_definition(text, "vllm")
    except InvalidRequest as error:
        assert error.details["line"] >= 1
