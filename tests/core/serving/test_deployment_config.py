"""The parser of ``deployment-config.yaml``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.deployment_config import parse_deployment_config
from bai_services.core.serving.service_definition import parse_service_definition

TEXT = """\
environment: {image: "cr.example.com/python:3.12"}
resource_slots: {cpu: 4, mem: 8g}
environ:
  MODE: slow
  KEEP: "1"
vllm:
  environment: {image: "cr.example.com/vllm:1"}
  resource_slots: {cuda.shares: 0.5}
  environ: {MODE: fast}
"""


def test_section_of_the_variant_takes_precedence() -> None:
    assert parse_deployment_config(TEXT, "custom") == {
        "image": "cr.example.com/python:3.12",
        "resources": {"cpu": "4", "mem": "8g"},
        "environ": {"MODE": "slow", "KEEP": "1"},
    }
    assert parse_deployment_config(TEXT, "vllm") == {
        "image": "cr.example.com/vllm:1",
        "resources": {"cpu": "4", "mem": "8g", "cuda.shares": "0.5"},
        "environ": {"MODE": "fast", "KEEP": "1"},
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "environ:\n", "vllm: {}\n"])
def test_empty_file_sets_nothing(text: str) -> None:
    assert parse_deployment_config(text, "vllm") == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("environ: {A: 1}\nimage: x\n", 2, "'image' is not known"),
        ("environ: [1]\n", 1, "must be a mapping"),
        ("environ:\n  A: [1]\n", 2, "must be a string or a number"),
        ("environ:\n  A: null\n", 2, "must be a string or a number"),
        ("environ:\n  A: 1\n  A: 2\n", 3, "twice"),
        ("environment:\n  os: x\n", 2, "'os' is not known"),
        ("sglang:\n  environ: 3\n", 2, "must be a mapping"),
        ("environ: {\n", 2, "expected"),
        ("- a\n", 1, "must be a mapping"),
        ("a: &a [*a]\n", 1, "alias"),
        ("#" * 70_000, 1, "more than"),
    ],
)
def test_errors_name_the_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as error:
        parse_deployment_config(text, "vllm")
    assert error.value.details["line"] == line


@given(st.text(alphabet="envirosurct:_ {}[]&*!\n-1a'\"\\", max_size=200))
def test_every_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse_deployment_config(text, "vllm")
    except InvalidRequest as error:
        assert error.details["line"] >= 1
    else:
        assert found.keys() <= {"image", "resources", "environ"}


_TEXTS = st.text("abcdefghij-._", min_size=1, max_size=10)


@given(environ=st.dictionaries(_TEXTS, _TEXTS, max_size=5), image=_TEXTS)
def test_same_values_as_in_a_service_definition(environ: dict[str, str], image: str) -> None:
    yaml_lines = [f"    '{name}': '{value}'" for name, value in environ.items()]
    toml_lines = [f"'{name}' = '{value}'" for name, value in environ.items()]
    yaml = "\n".join(["vllm:", f"  environment: {{image: '{image}'}}", "  environ:", *yaml_lines])
    toml = "\n".join(["[vllm.environment]", f"image = '{image}'", "[vllm.environ]", *toml_lines])
    assert parse_deployment_config(yaml, "vllm") == parse_service_definition(toml, "vllm")
