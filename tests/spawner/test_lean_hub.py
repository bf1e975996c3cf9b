"""Patches of the Hub, with the real functions of JupyterHub and a real database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from jupyterhub import orm
from jupyterhub.oauth import provider
from jupyterhub.utils import compare_token
from sqlalchemy.orm import Session

from bai_spawner.hub_patches import make_lean


@pytest.fixture
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    # Restore the current state at the end: the patches apply to this process.
    for module, name in ((provider, "hash_token"), (orm, "register_ping_connection")):
        monkeypatch.setattr(module, name, getattr(module, name))
    make_lean()


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
    make_lean()
    assert not hasattr(provider, "hash_token") and not hasattr(orm, "register_ping_connection")
