"""Patches of the Hub, with the real functions of JupyterHub and a real database."""

from __future__ import annotations

import ast
import hashlib
import importlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import jupyterhub
import pytest
import sqlalchemy as sa
from jupyterhub import orm
from jupyterhub.oauth import provider
from jupyterhub.utils import compare_token
from sqlalchemy.orm import Session

from bai_spawner.hub_patches import apply_hub_patches


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    # Restore the current state at the end: the patches apply to this process.
    for module, name in ((provider, "hash_token"), (orm, "register_ping_connection")):
        monkeypatch.setattr(module, name, getattr(module, name))
    apply_hub_patches()


@pytest.fixture
def db(tmp_path: Path, lean: None) -> Iterator[Session]:
    session = orm.new_session_factory(f"sqlite:///{tmp_path}/hub.sqlite")()
    yield session
    session.close()
    session.get_bind().dispose()


def secret_of(db: Session, secret: str) -> str:
    server = provider.make_provider(lambda: db, url_prefix="/oauth2", login_url="/login")
    return str(server.add_client("server", secret, "/callback").secret)


@pytest.mark.parametrize(
    ("secret", "rounds"),
    [
        (uuid.uuid4().hex, "1"),
        ("0" * 32, "16384"),
        ("chosen by somebody", "16384"),
        (uuid.uuid4().hex * 2, "16384"),
    ],
    ids=["made by the Hub", "no random number", "a sentence", "longer"],
)
def test_only_what_cannot_be_guessed_is_hashed_once(db: Session, secret: str, rounds: str) -> None:
    hashed = secret_of(db, secret)
    assert hashed.split(":")[1] == rounds
    assert compare_token(hashed, secret)
    assert not compare_token(hashed, uuid.uuid4().hex)


def test_the_secret_of_a_server_is_hashed_no_less_than_its_token(db: Session) -> None:
    secret = orm.new_token()
    token = orm.APIToken(token=secret)
    assert secret_of(db, secret).split(":")[:2] == str(token.hashed).split(":")[:2]


def test_a_file_is_not_asked_whether_it_is_there(db: Session) -> None:
    statements: list[str] = []

    @sa.event.listens_for(db.get_bind(), "before_cursor_execute")
    def keep(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    db.execute(sa.select(orm.User)).all()
    assert len(statements) == 1 and "FROM users" in statements[0]


def test_a_server_of_databases_is_asked(lean: None) -> None:
    # Only the dialect matters, no connection is made.
    engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert not engine.dispatch.engine_connect
    orm.register_ping_connection(engine)
    assert engine.dispatch.engine_connect


def test_a_hub_without_these_functions_is_left_as_it_is(
    lean: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(provider, "hash_token")
    monkeypatch.delattr(orm, "register_ping_connection")
    apply_hub_patches()
    assert not hasattr(provider, "hash_token") and not hasattr(orm, "register_ping_connection")


# What patches and overrides rely on: where it is, who relies on it, digest of its source. Note the
# digest only after reading the change of JupyterHub against the patch.
RELIED_ON = [
    ("jupyterhub.orm:register_ping_connection", "bai_spawner/hub_patches.py", "f6064c664e07005f"),
    ("jupyterhub.orm:new_session_factory", "bai_spawner/hub_patches.py", "f9cf223cb8c45b84"),
    ("jupyterhub.orm:Hashed", "bai_spawner/hub_patches.py", "f80e139ff61c88eb"),
    ("jupyterhub.utils:hash_token", "bai_spawner/hub_patches.py", "c4651ca3c9d9ecbc"),
    (
        "jupyterhub.oauth.provider:JupyterHubOAuthServer.add_client",
        "bai_spawner/hub_patches.py",
        "eb22037d2a258058",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler._set_user_cookie",
        "bai_auth/browser_sign_ins.py",
        "999cebcb60929b98",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler._user_for_cookie",
        "bai_auth/browser_sign_ins.py",
        "054fd5c186aa28ce",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler.set_session_cookie",
        "bai_auth/browser_sign_ins.py",
        "f00f4f94f56ad72c",
    ),
    ("jupyterhub.orm:APIToken.new", "bai_auth/browser_sign_ins.py", "9d1bd04f2a13fb45"),
    (
        "jupyterhub.handlers.base:BaseHandler.spawn_single_user",
        "bai_auth/server_rules.py",
        "97169c0c1966252a",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler.stop_single_user",
        "bai_auth/server_rules.py",
        "b2195b73e07d2cc9",
    ),
    (
        "jupyterhub.apihandlers.users:UserServerAPIHandler",
        "bai_auth/server_rules.py",
        "d51c6b451c6cf6a9",
    ),
    ("jupyterhub.handlers.pages:HomeHandler", "bai_auth/hub_pages.py", "0d8aaf4a68ae7fe5"),
    ("jupyterhub.handlers.pages:SpawnHandler", "bai_auth/hub_pages.py", "c47d73106b0b56b0"),
    ("jupyterhub.handlers.pages:AdminHandler", "bai_auth/hub_pages.py", "33994c5bb7f6eeae"),
]


@pytest.mark.parametrize(
    ("name", "user", "digest"), RELIED_ON, ids=[name for name, *_ in RELIED_ON]
)
def test_jupyterhub_is_as_the_patches_expect(name: str, user: str, digest: str) -> None:
    """The source file is read, because another test may have applied the patches."""
    module, _, path = name.partition(":")
    source = importlib.import_module(module).__spec__.origin  # type: ignore[union-attr]
    found = source_of(Path(str(source)).read_text(), path.split("."))
    assert found is not None, (
        f"JupyterHub {jupyterhub.__version__} has no {name}, on which {user} relies"
    )
    new = hashlib.sha256(found.encode()).hexdigest()[:16]
    assert new == digest, (
        f"JupyterHub {jupyterhub.__version__} changed {name}, on which {user} relies: compare the "
        f"patch with the change, then set the digest to {new}"
    )


def source_of(text: str, path: Sequence[str]) -> str | None:
    """Return the source of a function or class, without its layout."""
    nodes: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for name in path:
        found = next((n for n in nodes if getattr(n, "name", None) == name), None)
        nodes = getattr(found, "body", [])
    if found is None:
        return None
    return " ".join((ast.get_source_segment(text, found) or "").split())


def test_a_change_of_the_source_is_found() -> None:
    before = "class A:\n    def b(self):\n        return 1\n"
    assert source_of(before, ["A", "b"]) == source_of(before.replace("  ", " "), ["A", "b"])
    assert source_of(before, ["A", "b"]) != source_of(before.replace("1", "2"), ["A", "b"])
    assert source_of(before, ["A", "c"]) is None
