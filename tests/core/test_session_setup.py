"""Rules of session setups: precedence, limits, collisions and masking."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.accounts.roles import Role
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.setup import (
    MASK,
    MAX_DOTFILES_BYTES,
    BootstrapScript,
    Dotfile,
    SessionSetup,
    Setup,
    Variable,
    check_dotfiles,
    check_mounts,
    check_path,
    check_script,
    check_variables,
    combine,
    mask,
)

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def variable(name: str, value: str, is_secret: bool = False, role: Role = Role.USER) -> Variable:
    return Variable(name, value, is_secret, NOW, role)


def dotfile(path: str, content: str = "x", role: Role = Role.USER) -> Dotfile:
    return Dotfile(path, "644", content, NOW, role)


def script(text: str, role: Role = Role.USER) -> BootstrapScript:
    return BootstrapScript(text, 10, NOW, role)


NAMES = st.sampled_from("ABCD")
VARIABLES = st.dictionaries(NAMES, st.tuples(st.sampled_from("xyz"), st.booleans()))
PATHS = st.sampled_from([".a", ".a/b", ".b", ".c/d", ".c/e"])


def is_free(path: str, others: list[str]) -> bool:
    """Oracle: no path is equal to another or inside it."""
    return not any(
        path.split("/")[:n] == other.split("/")[:n]
        for other in others
        for n in [min(len(path.split("/")), len(other.split("/")))]
    )


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    variables = draw(VARIABLES)
    files: list[str] = []
    for path in draw(st.lists(PATHS, unique=True)):
        if is_free(path, files):
            files.append(path)
    return Setup(
        tuple(variable(name, value, secret) for name, (value, secret) in variables.items()),
        tuple(dotfile(path, draw(st.sampled_from("pq"))) for path in files),
        script(draw(st.sampled_from("st"))) if draw(st.booleans()) else None,
    )


@given(project=setups(), user=setups(), own=VARIABLES, mounts=st.lists(PATHS, max_size=2))
def test_the_later_setup_takes_precedence(
    project: Setup, user: Setup, own: dict[str, tuple[str, bool]], mounts: list[str]
) -> None:
    environ = {name: value for name, (value, _) in own.items()}
    secret = [name for name, (_, is_secret) in own.items() if is_secret]
    found = combine(
        [("p", project), ("u", user)], environ, secret, [f"/home/work/{path}" for path in mounts]
    )
    # Naive oracle: apply the sources one after the other; later ones override earlier ones.
    seen = {v.name: (v.value, v.is_secret) for v in project.variables}
    seen |= {v.name: (v.value, v.is_secret) for v in user.variables}
    seen |= own
    plain = {name: value for name, value in environ.items() if name not in secret}
    assert {**plain, **found.variables} == {name: value for name, (value, _) in seen.items()}
    assert set(found.secret_names) == {name for name, (_, is_secret) in seen.items() if is_secret}
    files = {f.path: f.content for f in user.dotfiles}
    files |= {f.path: f.content for f in project.dotfiles if is_free(f.path, list(files))}
    expected = {path: text for path, text in files.items() if is_free(path, mounts)}
    assert {f.path: f.content for f in found.files} == expected
    assert [(s.origin, s.script) for s in found.scripts] == [
        (origin, setup.bootstrap.script)
        for origin, setup in (("p", project), ("u", user))
        if setup.bootstrap
    ]
    assert SessionSetup.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("author", "applies_to"),
    [
        (Role.ADMIN, {Role.USER, Role.ADMIN}),
        (Role.SUPERADMIN, {Role.USER, Role.ADMIN, Role.MONITOR, Role.SUPERADMIN}),
    ],
)
def test_a_project_setup_does_not_run_code_of_a_lower_role(
    author: Role, applies_to: set[Role]
) -> None:
    setup = Setup(
        (variable("A", "1", role=author),), (dotfile(".a", role=author),), script("s", author)
    )
    for role in (Role.USER, Role.ADMIN, Role.MONITOR, Role.SUPERADMIN):
        assert setup.for_owner(role) == (setup if role in applies_to else Setup())


@pytest.mark.parametrize(
    "path",
    ["", "vimrc", "../.x", ".a/../b", "/.a", ".a//b", ".a/", ".ssh", ".ssh/authorized_keys"]
    + [".config", ".local", ".jupyter", ".terminfo", ".bai", ".a b", ".ä", ".a\n", "." + "x" * 300],
)
def test_invalid_path_of_a_dotfile_is_rejected(path: str) -> None:
    with pytest.raises(InvalidRequest):
        check_path(path)


@pytest.mark.parametrize("path", [".vimrc", ".config/nvim/init.vim", ".ssh/config", ".a-b_c@2"])
def test_valid_path_of_a_dotfile_is_accepted(path: str) -> None:
    assert check_path(path) == path


def test_setups_that_exceed_a_limit_or_are_malformed_are_rejected() -> None:
    half = "x" * (MAX_DOTFILES_BYTES // 2)
    check_dotfiles([dotfile(".a", half)])
    for files in (
        [dotfile(".a", half), dotfile(".b", half)],
        [dotfile(".a"), dotfile(".a/b")],
        [replace(dotfile(".a"), permission="6444")],
        [dotfile(".a", "\0")],
        [dotfile(f".{number}") for number in range(101)],
    ):
        with pytest.raises(InvalidRequest):
            check_dotfiles(files)
    for text, seconds in ((" ", 10), ("x\0", 10), ("x" * 65537, 10), ("x", 0), ("x", 301)):
        with pytest.raises(InvalidRequest):
            check_script(text, seconds)
    for name in ("HOME", "PATH", "BAI_X", "1A", "A" * 129):
        with pytest.raises(InvalidRequest):
            check_variables([variable(name, "x")], {name: "x"})


@pytest.mark.parametrize("mount", [".vim", ".vim/pack", ".vim/pack/x"])
def test_a_mount_may_not_hide_a_dotfile(mount: str) -> None:
    check_mounts([dotfile(".vim/pack")], ["/home/work/data", "/data/.vim", "/home/work"])
    with pytest.raises(InvalidRequest, match=r"collides with the dotfile \.vim/pack"):
        check_mounts([dotfile(".vim/pack")], [f"/home/work/{mount}"])


@pytest.mark.parametrize(
    ("text", "secrets", "masked"),
    [
        ("token=s3cret!", ["s3cret"], f"token={MASK}!"),
        ("s3cret s3cret-longer", ["s3cret", "s3cret-longer"], f"{MASK} {MASK}"),
        ("t1 -----BEGIN\nt2 abcdef\n", ["-----BEGIN\nabcdef"], f"t1 {MASK}\nt2 {MASK}\n"),
        ("a short value 123", ["123", "", " "], "a short value 123"),
    ],
)
def test_secrets_are_masked_in_a_log(text: str, secrets: list[str], masked: str) -> None:
    assert mask(text, secrets) == masked
