"""Recipes: which files are accepted, and the Dockerfile that the agent builds."""

from __future__ import annotations

import json

import pytest

from bai_services.core.cluster.recipes import (
    MAX_PACKAGES,
    MAX_RECIPE_CHARACTERS,
    MAX_STEPS,
    check_recipe,
    context_files,
    dockerfile_of,
)
from bai_services.core.errors import InvalidRequest

IMAGE = "sha256:0123"
HEAD = [f"FROM {IMAGE}", 'LABEL ai.backend.recipe-cache="1"', "USER 0"]


def steps(text: str) -> list[str]:
    """Return the instructions into which a user's Dockerfile is converted."""
    lines = dockerfile_of({"Dockerfile": text}, IMAGE).splitlines()
    assert lines[:3] == HEAD
    return lines[3:]


def test_files_become_steps_in_the_order_of_their_dependencies() -> None:
    files = {
        "Dockerfile": "RUN echo end",
        "requirements.txt": "pandas\n",
        "apt.txt": "graphviz  # for plots\n\nlibfoo1=1.2-3~bpo:1 g++\n",
    }
    lines = dockerfile_of(files, IMAGE, ["PIP_INDEX_URL", "not a name"]).splitlines()
    assert lines[3] == "ARG PIP_INDEX_URL"
    assert "install -y --no-install-recommends graphviz libfoo1=1.2-3~bpo:1 g++;" in lines[4]
    assert lines[5] == "COPY requirements.txt /tmp/bai-recipe/requirements.txt"
    assert "pip install --prefix /opt/custom -r requirements.txt" in lines[6]
    assert lines[7:] == ['RUN ["/bin/sh", "-c", "echo end"]']
    assert context_files(files) == {"requirements.txt": "pandas\n"}


def test_conda_environments_are_installed_with_the_tool_of_the_image() -> None:
    lines = dockerfile_of({"environment.yml": "dependencies: [r-base]"}, IMAGE).splitlines()
    assert lines[3] == "COPY environment.yml /tmp/bai-recipe/environment.yml"
    assert "for tool in micromamba mamba conda" in lines[4]


@pytest.mark.parametrize(
    "text, expected",
    [
        pytest.param("FROM base\nRUN true", ['RUN ["/bin/sh", "-c", "true"]'], id="base"),
        pytest.param("run a \\\n  # c\n  && b", ['RUN ["/bin/sh", "-c", "a  && b"]'], id="joined"),
        pytest.param('RUN ["a", "b"]', ['RUN ["a", "b"]'], id="exec form"),
        pytest.param("RUN [ -f /x ]", ['RUN ["/bin/sh", "-c", "[ -f /x ]"]'], id="test"),
        pytest.param("ENV PATH=$PATH:/x", ['ENV PATH="$PATH:/x"'], id="variable"),
        pytest.param('ENV A="b c"', ['ENV A="b c"'], id="quotes"),
        pytest.param("ENV A='b\"c'", ['ENV A="b\\"c"'], id="other quotes"),
        pytest.param("WORKDIR /srv\nUSER 1000", ["WORKDIR /srv", "USER 1000"], id="others"),
        pytest.param("# only a comment\n\n", [], id="nothing"),
    ],
)
def test_instructions_of_a_dockerfile_are_rewritten(text: str, expected: list[str]) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    "text, problem",
    [
        pytest.param("FROM other", "line 1: the only image is", id="other image"),
        pytest.param("RUN a\nFROM base", "line 2: the only image is", id="second stage"),
        pytest.param("FROM base AS b", "the only image is", id="named stage"),
        pytest.param("COPY --from=localhost/custom/bob/x:1 / /x", "COPY is not allowed", id="copy"),
        pytest.param("ADD http://169.254.169.254/ /x", "ADD is not allowed", id="url"),
        pytest.param("ONBUILD RUN x", "ONBUILD is not allowed", id="onbuild"),
        pytest.param("VOLUME /x", "VOLUME is not allowed", id="volume"),
        pytest.param("RUN --mount=type=bind,from=x y", "options of RUN", id="mount"),
        pytest.param("RUN --network=host x", "options of RUN", id="network"),
        pytest.param("RUN \\\n --mount=type=ssh y", "options of RUN", id="continued option"),
        pytest.param("RUN <<EOF\nx\nEOF", "here-documents", id="here-document"),
        pytest.param("# syntax=evil/frontend\nRUN x", "parser directives", id="frontend"),
        pytest.param("#escape=`\nRUN x", "parser directives", id="escape"),
        pytest.param("ENV A b", "NAME=VALUE", id="old form"),
        pytest.param("ENV A=b C=d", "use quotes", id="two variables"),
        pytest.param('ENV A="b"\nRUN', "RUN has no value", id="empty"),
        pytest.param("WORKDIR $HOME", "may not contain", id="variable in a path"),
        pytest.param("RUN x\n" * (MAX_STEPS + 1), "more than 100 steps", id="many"),
    ],
)
def test_forbidden_instructions_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        check_recipe({"Dockerfile": text})


@pytest.mark.parametrize(
    "files, problem",
    [
        pytest.param({}, "at least one of", id="nothing"),
        pytest.param({"setup.py": "x"}, "'setup.py' is not a file of a recipe", id="unknown"),
        pytest.param({"../apt.txt": "x"}, "is not a file of a recipe", id="path"),
        pytest.param({"apt.txt": "x" * (MAX_RECIPE_CHARACTERS + 1)}, "more than 64 KiB", id="long"),
        pytest.param({"requirements.txt": "a\0"}, "NUL", id="NUL"),
        pytest.param({"apt.txt": "a\nb;reboot"}, "line 2: 'b;reboot'", id="shell"),
        pytest.param({"apt.txt": "$(x)"}, "is not the name of a package", id="substitution"),
        pytest.param({"apt.txt": "-oDpkg::Pre-Invoke::=x"}, "is not the name", id="option"),
        pytest.param({"apt.txt": "/tmp/x.deb"}, "is not the name of a package", id="file"),
        pytest.param({"apt.txt": "a " * (MAX_PACKAGES + 1)}, "more than 500 packages", id="many"),
    ],
)
def test_malformed_recipes_are_refused(files: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem.replace("$", r"\$")):
        check_recipe(files)


@pytest.mark.parametrize(
    "command", ['a"b', "a\\\\b", "a\u2028b", "a\tb", "a\x0bFROM x", "é", "a\rb"], ids=ascii
)
def test_a_command_cannot_end_its_instruction(command: str) -> None:
    (line,) = steps(f"RUN x {command}")
    assert line.isascii() and line.isprintable()
    assert json.loads(line.removeprefix("RUN "))[2] == f"x {command}"
