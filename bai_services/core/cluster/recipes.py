"""Recipes: files from which an agent builds a custom image."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from ..user_input import shown

APT, CONDA, PIP, DOCKERFILE = "apt.txt", "environment.yml", "requirements.txt", "Dockerfile"
FILES = (APT, CONDA, PIP, DOCKERFILE)
MAX_RECIPE_CHARACTERS = 64 * 1024
# A character has at most four bytes.
MAX_RECIPE_BYTES = 4 * MAX_RECIPE_CHARACTERS
MAX_STEPS = 100
MAX_PACKAGES = 500
# Maximum size of the stored output of a build; earlier output is dropped.
MAX_LOG_CHARACTERS = 64 * 1024
# The name of the base image in a Dockerfile.
BASE = "base"
# A label of intermediate images, by which the agent finds and removes the cache of builds.
CACHE_LABEL = "ai.backend.recipe-cache"
# Directory with the files of the recipe during a build.
_DIRECTORY = "/tmp/bai-recipe"
_CLEAN = f"trap 'rm -rf {_DIRECTORY}' EXIT; "
_SHELL = ("/bin/sh", "-c")

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARSER_DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=", re.IGNORECASE)

_INSTALL_APT = (
    "export DEBIAN_FRONTEND=noninteractive; set -e; apt-get update; "
    "apt-get install -y --no-install-recommends {packages}; "
    "apt-get clean; rm -rf /var/lib/apt/lists/*"
)
# Session images import packages from /opt/custom. In other images, the agent sets PYTHONUSERBASE to
# /opt/custom, so it is the user's package directory.
_INSTALL_PIP = (
    "set -e; export PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore "
    "PYTHONUSERBASE=/opt/custom; cd {directory}; "
    "if [ -x /opt/bai/bin/python ]; then "
    "/opt/bai/bin/python -m pip install --prefix /opt/custom -r requirements.txt; "
    "elif python3 -m pip --version >/dev/null 2>&1; then "
    "python3 -m pip install --user -r requirements.txt; "
    "else python3 -m venv /tmp/bai-pip; "
    # The option --python requires a path, because pip does not search PATH.
    '/tmp/bai-pip/bin/python -m pip --python "$(command -v python3)" install --user '
    "-r requirements.txt; "
    "rm -rf /tmp/bai-pip; fi"
)
_INSTALL_CONDA = (
    "set -e; cd {directory}; for tool in micromamba mamba conda; do "
    'if command -v "$tool" >/dev/null; then '
    '"$tool" env update --yes --name base --file environment.yml; exit; fi; done; '
    "echo 'the base image contains neither micromamba nor mamba nor conda' >&2; exit 1"
)


def check_recipe(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a recipe, if they are valid.

    Raises
    ------
    InvalidRequest
        If there is no file, a file is unknown, too long or malformed.
    """
    if not files:
        raise InvalidRequest(
            refusal(RefusalText.RECIPE_EMPTY, names=", ".join(FILES)), field="recipe"
        )
    for name, text in files.items():
        if name not in FILES:
            raise InvalidRequest(
                refusal(RefusalText.RECIPE_FILE, name=shown(name), names=", ".join(FILES)),
                field="recipe",
            )
        if len(text) > MAX_RECIPE_CHARACTERS or "\0" in text:
            raise InvalidRequest(
                refusal(
                    RefusalText.RECIPE_FILE_TOO_LONG, name=name, limit=MAX_RECIPE_CHARACTERS // 1024
                ),
                field="recipe",
            )
    _packages(files.get(APT, ""))
    _steps(files.get(DOCKERFILE, ""))
    return dict(files)


def dockerfile_of(files: Mapping[str, str], image: str, variables: Sequence[str] = ()) -> str:
    """Return the Dockerfile that the agent passes to Docker.

    Instructions of the user's Dockerfile are parsed and written again, so they cannot use another
    image, or copy from a URL or from the machine. ``variables``: names of the variables of the
    installation, such as the address of a mirror; they are not part of the image.

    Raises
    ------
    InvalidRequest
        If a file is malformed.
    """
    checked = check_recipe(files)
    lines = [f"FROM {image}", f'LABEL {CACHE_LABEL}="1"', "USER 0"]
    lines += [f"ARG {name}" for name in variables if _VARIABLE.fullmatch(name)]
    if packages := _packages(checked.get(APT, "")):
        lines.append(_run(_INSTALL_APT.format(packages=" ".join(packages))))
    commands = ((CONDA, _INSTALL_CONDA), (PIP, _INSTALL_PIP))
    for name, command in commands:
        if checked.get(name, "").strip():
            # Copy each file just before its step, so that a changed file does not invalidate the
            # cache of earlier steps.
            lines.append(f"COPY {name} {_DIRECTORY}/{name}")
            lines.append(_run(_CLEAN + command.format(directory=_DIRECTORY)))
    return "\n".join([*lines, *_steps(checked.get(DOCKERFILE, "")), ""])


def context_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a recipe that a build reads."""
    return {name: text for name, text in files.items() if name in (CONDA, PIP)}


def _packages(text: str) -> list[str]:
    packages: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].split():
            if not _PACKAGE.fullmatch(word):
                raise InvalidRequest(
                    refusal(RefusalText.PACKAGE_NAME, path=APT, line=number, word=shown(word)),
                    field="recipe",
                )
            packages.append(word)
    if len(packages) > MAX_PACKAGES:
        raise InvalidRequest(
            refusal(RefusalText.TOO_MANY_PACKAGES, path=APT, limit=MAX_PACKAGES), field="recipe"
        )
    return packages


def _steps(text: str) -> list[str]:
    """Return the validated instructions of the user's Dockerfile."""
    steps: list[str] = []
    for number, line in _logical_lines(text):
        word, _, rest = line.partition(" ")
        try:
            step = _step(word.upper(), rest.strip(), is_first=not steps)
        except InvalidRequest as error:
            problem = refusal(RefusalText.RECIPE_LINE, error.text, path=DOCKERFILE, line=number)
            raise InvalidRequest(problem, field="recipe") from None
        if step:
            steps.append(step)
    if len(steps) > MAX_STEPS:
        raise InvalidRequest(
            refusal(RefusalText.TOO_MANY_STEPS, path=DOCKERFILE, limit=MAX_STEPS), field="recipe"
        )
    return steps


def _step(word: str, rest: str, *, is_first: bool) -> str:
    if word == "FROM":
        if rest != BASE or not is_first:
            raise InvalidRequest(refusal(RefusalText.STEP_FROM, name=BASE))
        return ""
    if not rest:
        raise InvalidRequest(refusal(RefusalText.STEP_WITHOUT_VALUE, word=shown(word)))
    if word == "RUN":
        return _run_step(rest)
    if word == "ENV":
        return _env(rest)
    if word in ("WORKDIR", "USER"):
        if not rest.isprintable() or any(character in rest for character in "\"'\\$` "):
            raise InvalidRequest(refusal(RefusalText.STEP_QUOTES, word=word))
        return f"{word} {rest}"
    raise InvalidRequest(refusal(RefusalText.STEP_NOT_ALLOWED, word=shown(word)))


def _run_step(rest: str) -> str:
    if rest.startswith("--"):
        raise InvalidRequest(refusal(RefusalText.STEP_OPTIONS))
    if "<<" in rest.split("\n", 1)[0] and re.match(r"<<-?\w+", rest):
        raise InvalidRequest(refusal(RefusalText.STEP_HERE_DOCUMENT))
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and words and all(isinstance(one, str) for one in words):
            return f"RUN {json.dumps(words)}"
    return _run(rest)


def _run(command: str) -> str:
    return f"RUN {json.dumps([*_SHELL, command])}"


def _env(rest: str) -> str:
    """Return an instruction for one variable: ``NAME=VALUE``, VALUE in quotes or not."""
    name, sign, value = rest.partition("=")
    if not sign or not _VARIABLE.fullmatch(name) or not value.isprintable():
        raise InvalidRequest(refusal(RefusalText.STEP_ENV))
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    elif any(character in value for character in " \"'"):
        raise InvalidRequest(refusal(RefusalText.STEP_ENV_QUOTES))
    # Do not escape $: Docker replaces $NAME, which is common for PATH.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'ENV {name}="{escaped}"'


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the instructions with the number of their first line; continued lines are joined."""
    found: list[tuple[int, str]] = []
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.strip()
        if line.startswith("#"):
            if _PARSER_DIRECTIVE.match(line):
                raise InvalidRequest(
                    refusal(RefusalText.PARSER_DIRECTIVE, path=DOCKERFILE, line=number),
                    field="recipe",
                )
            continue
        if not line:
            continue
        first = first or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        found.append((first, pending + line))
        pending, first = "", 0
    if pending.strip():
        found.append((first, pending.strip()))
    return found
