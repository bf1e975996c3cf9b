"""A manager on a fresh database with the demo data, and its real HTTP server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from cryptography.fernet import Fernet
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from bai_services.api.accounts.sign_in import SignIn
from bai_services.api.app import make_app
from bai_services.api.base import BODY_CHUNK_BYTES
from bai_services.api.running_requests import RunningRequests
from bai_services.client import Client, Keypair, Token
from bai_services.core.accounts.records import NewKeypair
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.listing import ListQuery
from bai_services.db import schema
from bai_services.db.accounts.keypairs import KeypairStore
from bai_services.db.accounts.users import UserStore
from bai_services.db.database import Database
from bai_services.db.tables.accounts import users
from bai_services.db.tables.folders import vfolder_grants, vfolder_invitations
from bai_services.demo import Demo, DemoPasswords
from bai_services.manager.accounts.keypair_secrets import KeypairSecrets
from bai_services.manager.manager import Manager
from bai_services.manager.settings import Settings

HUB_TOKEN = "hub-secret"
AGENT_TOKEN = "agent-secret"
METRICS_TOKEN = "metrics-secret"
GATEWAY_TOKEN = "gateway-secret"
PASSWORD = "correct horse 1!"

# All managers in a test process have this key by default, so that they can decrypt each other's
# secrets.
KEY = Fernet.generate_key()
# The lowest cost of argon2, because tests hash many passwords.
CHEAP_HASHES = {"password_memory_kib": 8, "password_rounds": 1}


class MovableClock:
    """A clock that stands still until a test moves it.

    It starts at the real time, because not all requests have the date of this clock: clients of
    `Api` sign with this clock, but `bai` signs with the real time.
    """

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **delta: float) -> None:
        """Advance by a ``timedelta`` with these keywords, such as ``minutes=5``."""
        self.now += timedelta(**delta)


def settings(database_url: str, home: Path, **others: object) -> Settings:
    return Settings(
        home=home,
        database_url=database_url,
        storage_root=home / "vfolders",
        hub_token=HUB_TOKEN,
        agent_token=AGENT_TOKEN,
        gateway_token=GATEWAY_TOKEN,
        metrics_token=METRICS_TOKEN,
        **{"key": KEY, **CHEAP_HASHES, **others},  # type: ignore[arg-type]  # fields by name
    )


@asynccontextmanager
async def manager_on(
    database_url: str,
    home: Path,
    clock: MovableClock,
    *,
    is_migrated: bool = False,
    **others: object,
) -> AsyncIterator[Manager]:
    """Yield a manager without starting its loops; migrate its database unless ``is_migrated``."""
    if not is_migrated:
        await asyncio.to_thread(schema.upgrade, database_url)
    made = Manager(settings(database_url, home, **others), Database(database_url), clock)
    try:
        yield made
    finally:
        await made.stop()


@dataclass
class World:
    """A manager with the demo data, its clock, and the keypair of each demo user."""

    manager: Manager
    clock: MovableClock
    keys: dict[str, NewKeypair] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Failed sign-ins are not delayed. The tests of the delay set another function here.
        self.manager.accounts.sign_ins.lockouts.pause = no_pause

    async def caller(self, username: str) -> Caller:
        """Return a user, read from the database, as a caller of the manager's methods."""
        return await self.manager.accounts.callers.by_username(username, "127.0.0.1")

    async def user_id(self, username: str) -> str:
        row = await UserStore(self.manager.database).find(username)
        assert row is not None
        return row.id

    async def project_id(self, key: str = "default/default") -> str:
        """Return the id of the project with the key ``DOMAIN/NAME``."""
        row = await self.manager.accounts.projects.get(SUPERADMIN, key)
        return row.id

    async def share_with_many(self, vfolder_id: str, grants: int, invitations: int = 0) -> None:
        """Share a folder with copies of *user2*.

        The first ``grants`` copies have a grant; ``invitations`` more have a pending invitation.
        """
        async with self.manager.database.write() as tx:
            result = await tx.execute(sa.select(users).where(users.c.username == "user2"))
            user = result.mappings().one()
            names = [f"copy-{number}" for number in range(grants + invitations)]
            emails = [f"{name}@example.com" for name in names]
            copies = zip(names, emails, strict=True)
            await tx.execute(
                users.insert(),
                [{**user, "id": name, "username": name, "email": email} for name, email in copies],
            )
            shared = {"vfolder_id": vfolder_id, "created_at": self.clock(), "permission": "ro"}
            granted = {**shared, "granted_by": "user"}
            await tx.execute(
                vfolder_grants.insert(), [{**granted, "user_id": name} for name in names[:grants]]
            )
            if invitations:
                offered = {**shared, "inviter_id": "", "inviter": "user", "status": "pending"}
                offered["status_changed_at"] = self.clock()
                await tx.execute(
                    vfolder_invitations.insert(),
                    [{**offered, "id": name, "invitee_id": name} for name in names[grants:]],
                )

    async def set_password(self, username: str, password: str = PASSWORD) -> None:
        await DemoPasswords(self.manager).set({username: password})


SUPERADMIN = Caller(Role.SUPERADMIN, username="test")
HUB = Caller(Role.HUB)
AGENT = Caller(Role.AGENT)


async def no_pause(seconds: float) -> None:
    """Cause no delay."""


async def make_world(manager: Manager, clock: MovableClock, engine: str = "process") -> World:
    keys = await Demo(manager).create(engine, "local/session:latest")
    return World(manager, clock, keys)


# Secret keys by access key. Many tests use copies of one database; reading its keys takes 10 ms.
_known_secrets: dict[str, str] = {}


async def known_world(manager: Manager, clock: MovableClock) -> World:
    """Return the `World` of a manager whose database has the demo data of `create_demo`."""
    store = KeypairStore(manager.database)
    keys = {}
    for row in (await store.page(ListQuery())).items:
        if row.access_key not in _known_secrets:
            encrypted = await store.encrypted_secret(row.access_key)
            assert encrypted is not None
            _known_secrets[row.access_key] = KeypairSecrets(KEY).decrypt(encrypted)
        keys[row.user] = NewKeypair(row.access_key, _known_secrets[row.access_key])
    return World(manager, clock, keys)


async def create_demo(database_url: str, home: Path) -> None:
    """Create the demo data in a template database: tests copy the template, which saves time."""
    clock = MovableClock()
    async with manager_on(database_url, home, clock) as manager:
        await make_world(manager, clock)


def sqlite_copy(template: Path, folder: Path) -> str:
    """Copy a database into a folder and return its URL."""
    shutil.copy(template, folder / "bai.sqlite")
    return f"sqlite+aiosqlite:///{folder}/bai.sqlite"


class Api:
    """The manager's HTTP server, with clients for each type of caller."""

    def __init__(self, world: World, url: str, running_requests: RunningRequests) -> None:
        self.world = world
        self.url = url
        self.running_requests = running_requests
        self._clients: list[Client] = []

    async def client(self, username: str) -> Client:
        """Return a client that signs with the keypair of a demo user."""
        keys = self.world.keys[username]
        keypair = Keypair(keys.access_key, keys.secret_key)
        # Sign with the test's clock: a test may move it beyond the permitted clock skew.
        return self._close_later(Client(self.url, keypair, clock=self.world.clock))

    async def share_folder(self, owner: str, key: str, to: str, permission: str = "ro") -> None:
        """Share a folder with the user ``to``, who accepts the invitation."""
        path = f"/vfolders/{key}/grants/{to}"
        grant = await (await self.client(owner)).put(path, {"permission": permission})
        if grant["is_pending"]:
            accept = f"/vfolder-invitations/{grant['invitation_id']}/accept"
            await (await self.client(to)).post(accept)

    @property
    def hub(self) -> Client:
        return self._close_later(Client(self.url, Token(HUB_TOKEN)))

    @property
    def agent(self) -> Client:
        return self._close_later(Client(self.url, Token(AGENT_TOKEN)))

    @property
    def gateway(self) -> Client:
        return self._close_later(Client(self.url, Token(GATEWAY_TOKEN)))

    def with_token(self, token: str) -> Client:
        return self._close_later(Client(self.url, Token(token)))

    @property
    def nobody(self) -> Client:
        return self._close_later(Client(self.url))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def _close_later(self, client: Client) -> Client:
        self._clients.append(client)
        return client


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Api]:
    """Serve the manager on a free port, in the running event loop."""
    app = make_app(world.manager, SignIn(world.manager))
    server = HTTPServer(app, chunk_size=BODY_CHUNK_BYTES)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    url = f"http://127.0.0.1:{port}{world.manager.settings.base_url}"
    api = Api(world, url, app.settings["running_requests"])
    try:
        yield api
    finally:
        await api.close()
        server.stop()
        await app.settings["running_requests"].end(10)
        await server.close_all_connections()
