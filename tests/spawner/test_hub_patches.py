"""Patches of the Hub, with the real functions of JupyterHub and a real database."""

from __future__ import annotations

import ast
import hashlib
import importlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
import sqlalchemy as sa
from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.oauth import provider
from jupyterhub.utils import compare_token
from sqlalchemy.orm import Session

from bai_spawner.hub_patches import apply_hub_patches

PATCHED: tuple[tuple[Any, str], ...] = (
    (provider, "hash_token"),
    (orm, "register_ping_connection"),
    (BaseHandler, "template_namespace"),
    (BaseHandler, "render_template"),
    (BaseHandler, "finish"),
)


@pytest.fixture
def hub_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    # The patches change functions in this process; restore the functions after the test.
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    apply_hub_patches()


@pytest.fixture
def db(tmp_path: Path, hub_patches: None) -> Iterator[Session]:
    session = orm.new_session_factory(f"sqlite:///{tmp_path}/hub.sqlite")()
    yield session
    session.close()
    session.get_bind().dispose()


def hashed_secret(db: Session, secret: str) -> str:
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
    ids=["random UUID", "zeros", "passphrase", "two UUIDs"],
)
def test_only_a_random_uuid_uses_one_hash_round(db: Session, secret: str, rounds: str) -> None:
    hashed = hashed_secret(db, secret)
    assert hashed.split(":")[1] == rounds
    assert compare_token(hashed, secret)
    assert not compare_token(hashed, uuid.uuid4().hex)


def test_the_oauth_secret_is_hashed_like_the_api_token(db: Session) -> None:
    secret = orm.new_token()
    token = orm.APIToken(token=secret)
    assert hashed_secret(db, secret).split(":")[:2] == str(token.hashed).split(":")[:2]


def test_sqlite_connection_is_not_pinged(db: Session) -> None:
    statements: list[str] = []

    @sa.event.listens_for(db.get_bind(), "before_cursor_execute")
    def record(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    db.execute(sa.select(orm.User)).all()
    assert len(statements) == 1 and "FROM users" in statements[0]


def test_postgresql_connection_is_pinged(hub_patches: None) -> None:
    # The patch checks only the dialect, so the test opens no connection.
    engine = sa.create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert not engine.dispatch.engine_connect
    orm.register_ping_connection(engine)
    assert engine.dispatch.engine_connect


def test_functions_missing_in_jupyterhub_are_not_added(
    hub_patches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in PATCHED:
        monkeypatch.delattr(owner, name)
    apply_hub_patches()
    assert not any(name in vars(owner) for owner, name in PATCHED)


# Functions and classes of JupyterHub on which our patches and overrides rely. Each row has the
# name, our module that relies on the function or class, and a digest of its source. Compare
# JupyterHub's change with the patch before you update a digest.
RELIED_ON = [
    ("jupyterhub.orm:register_ping_connection", "bai_spawner/hub_patches.py", "f6064c664e07005f"),
    ("jupyterhub.orm:new_session_factory", "bai_spawner/hub_patches.py", "f9cf223cb8c45b84"),
    (
        "jupyterhub.handlers.base:BaseHandler.template_namespace",
        "bai_spawner/hub_patches.py",
        "cded8ce867a0be82",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler.render_template",
        "bai_spawner/hub_patches.py",
        "50aeeb5ce3a22dcc",
    ),
    (
        "jupyterhub.handlers.base:BaseHandler.finish",
        "bai_spawner/hub_patches.py",
        "77012bc432e33a9c",
    ),
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
    (
        "jupyterhub.apihandlers.users:UserTokenListAPIHandler.post",
        "bai_auth/token_rules.py",
        "fe3bb05abf6f325d",
    ),
    ("jupyterhub.handlers.pages:HomeHandler", "bai_auth/hub_pages.py", "0d8aaf4a68ae7fe5"),
    ("jupyterhub.handlers.pages:SpawnHandler", "bai_auth/hub_pages.py", "c47d73106b0b56b0"),
    ("jupyterhub.handlers.pages:AdminHandler", "bai_auth/hub_pages.py", "33994c5bb7f6eeae"),
    ("jupyterhub.handlers.base:UserUrlHandler", "bai_auth/hub_pages.py", "3aff4b4471597a50"),
]


@pytest.mark.parametrize(
    ("name", "dependent", "digest"), RELIED_ON, ids=[name for name, *_ in RELIED_ON]
)
def test_sources_on_which_we_rely_are_unchanged(name: str, dependent: str, digest: str) -> None:
    """Compares the source files, because another test may have patched the functions in memory."""
    module, _, path = name.partition(":")
    source = importlib.import_module(module).__spec__.origin  # type: ignore[union-attr]
    found = source_of(Path(str(source)).read_text(), path.split("."))
    assert found is not None, (
        f"JupyterHub {jupyterhub.__version__} has no {name}, on which {dependent} relies"
    )
    new = hashlib.sha256(found.encode()).hexdigest()[:16]
    assert new == digest, (
        f"JupyterHub {jupyterhub.__version__} changed {name}, on which {dependent} relies: compare "
        f"the patch with the change, then set the digest to {new}"
    )


def source_of(text: str, path: Sequence[str]) -> str | None:
    """Return the source of a function or class, with each run of whitespace replaced by one space.

    Return None if there is no such function or class.
    """
    nodes: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for name in path:
        found = next((n for n in nodes if getattr(n, "name", None) == name), None)
        nodes = getattr(found, "body", [])
    if found is None:
        return None
    return " ".join((ast.get_source_segment(text, found) or "").split())


def test_source_of_ignores_whitespace_only() -> None:
    before = "class A:\n    def b(self):\n        return 1\n"
    assert source_of(before, ["A", "b"]) == source_of(before.replace("  ", " "), ["A", "b"])
    assert source_of(before, ["A", "b"]) != source_of(before.replace("1", "2"), ["A", "b"])
    assert source_of(before, ["A", "c"]) is None
