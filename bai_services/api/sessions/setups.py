"""Variables, dotfiles and bootstrap scripts of users (`/me/…`) and projects (`/projects/…`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, StringConstraints

from bai_services.core.sessions import setup as records
from bai_services.core.sessions.rules import MAX_ENVIRON_VALUE_BYTES
from bai_services.core.sessions.setup import (
    DEFAULT_SCRIPT_SECONDS,
    MAX_DOTFILES_BYTES,
    MAX_SCRIPT_BYTES,
    MAX_SCRIPT_SECONDS,
)

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel

ValueText = Annotated[
    str, StringConstraints(max_length=MAX_ENVIRON_VALUE_BYTES, pattern=r"^[^\x00]*$")
]
FileText = Annotated[str, StringConstraints(max_length=MAX_DOTFILES_BYTES, pattern=r"^[^\x00]*$")]
ScriptText = Annotated[str, StringConstraints(max_length=MAX_SCRIPT_BYTES, pattern=r"^[^\x00]*$")]
PermissionText = Annotated[str, StringConstraints(pattern=r"^[0-7]{3}$")]
ScriptSeconds = Annotated[int, Field(ge=1, le=MAX_SCRIPT_SECONDS)]


class VariableChange(Body):
    """``is_secret``: the value is stored encrypted and never returned."""

    value: ValueText
    is_secret: bool = False


class Variable(ResponseModel):
    """``value`` is null if the variable is secret. ``role`` is the role of its author."""

    name: str
    value: str | None
    is_secret: bool
    changed_at: datetime
    role: str


class VariableList(ResponseModel):
    items: list[Variable]


class DotfileChange(Body):
    content: FileText
    permission: PermissionText = "644"


class Dotfile(ResponseModel):
    """``path`` is relative to the home of a session; ``permission`` is octal."""

    path: str
    permission: str
    content: str
    changed_at: datetime
    role: str


class DotfileList(ResponseModel):
    items: list[Dotfile]


class BootstrapChange(Body):
    script: ScriptText
    timeout_seconds: ScriptSeconds = DEFAULT_SCRIPT_SECONDS


class BootstrapScript(ResponseModel):
    script: str
    timeout_seconds: int
    changed_at: datetime
    role: str


class Bootstrap(ResponseModel):
    """``bootstrap`` is null if there is no script."""

    bootstrap: BootstrapScript | None


class MyVariablesHandler(APIHandler):
    @operation("List your own environment variables", tag="me", returns=VariableList)
    async def get(self) -> dict[str, Sequence[records.Variable]]:
        return {"items": (await self.manager.sessions.setups.get(self.caller)).variables}


class MyVariableHandler(APIHandler):
    @operation("Set an environment variable", tag="me", body=VariableChange, returns=Variable)
    async def put(self, name: str, body: VariableChange) -> records.Variable:
        return await self.manager.sessions.setups.set_variable(
            self.caller, name, body.value, body.is_secret
        )

    @operation("Remove an environment variable", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self, name: str) -> None:
        await self.manager.sessions.setups.remove_variable(self.caller, name)


class MyDotfilesHandler(APIHandler):
    @operation("List your own dotfiles", tag="me", returns=DotfileList)
    async def get(self) -> dict[str, Sequence[records.Dotfile]]:
        return {"items": (await self.manager.sessions.setups.get(self.caller)).dotfiles}


class MyDotfileHandler(APIHandler):
    @operation("Set a dotfile", tag="me", body=DotfileChange, returns=Dotfile)
    async def put(self, path: str, body: DotfileChange) -> records.Dotfile:
        return await self.manager.sessions.setups.set_dotfile(self.caller, path, body.model_dump())

    @operation("Remove a dotfile", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self, path: str) -> None:
        await self.manager.sessions.setups.remove_dotfile(self.caller, path)


class MyBootstrapHandler(APIHandler):
    @operation("Read your own bootstrap script", tag="me", returns=Bootstrap)
    async def get(self) -> dict[str, records.BootstrapScript | None]:
        return {"bootstrap": (await self.manager.sessions.setups.get(self.caller)).bootstrap}

    @operation(
        "Set your own bootstrap script", tag="me", body=BootstrapChange, returns=BootstrapScript
    )
    async def put(self, body: BootstrapChange) -> records.BootstrapScript:
        return await self.manager.sessions.setups.set_bootstrap(
            self.caller, body.script, body.timeout_seconds
        )

    @operation("Remove your own bootstrap script", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self) -> None:
        await self.manager.sessions.setups.remove_bootstrap(self.caller)


class ProjectVariablesHandler(APIHandler):
    @operation("List the environment variables of a project", tag="projects", returns=VariableList)
    async def get(self, key: str) -> dict[str, Sequence[records.Variable]]:
        return {"items": (await self.manager.sessions.setups.get(self.caller, key)).variables}


class ProjectVariableHandler(APIHandler):
    @operation(
        "Set an environment variable of a project",
        tag="projects",
        body=VariableChange,
        returns=Variable,
    )
    async def put(self, key: str, name: str, body: VariableChange) -> records.Variable:
        return await self.manager.sessions.setups.set_variable(
            self.caller, name, body.value, body.is_secret, key
        )

    @operation(
        "Remove an environment variable of a project",
        tag="projects",
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self, key: str, name: str) -> None:
        await self.manager.sessions.setups.remove_variable(self.caller, name, key)


class ProjectDotfilesHandler(APIHandler):
    @operation("List the dotfiles of a project", tag="projects", returns=DotfileList)
    async def get(self, key: str) -> dict[str, Sequence[records.Dotfile]]:
        return {"items": (await self.manager.sessions.setups.get(self.caller, key)).dotfiles}


class ProjectDotfileHandler(APIHandler):
    @operation("Set a dotfile of a project", tag="projects", body=DotfileChange, returns=Dotfile)
    async def put(self, key: str, path: str, body: DotfileChange) -> records.Dotfile:
        return await self.manager.sessions.setups.set_dotfile(
            self.caller, path, body.model_dump(), key
        )

    @operation("Remove a dotfile of a project", tag="projects", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, path: str) -> None:
        await self.manager.sessions.setups.remove_dotfile(self.caller, path, key)


class ProjectBootstrapHandler(APIHandler):
    @operation("Read the bootstrap script of a project", tag="projects", returns=Bootstrap)
    async def get(self, key: str) -> dict[str, records.BootstrapScript | None]:
        return {"bootstrap": (await self.manager.sessions.setups.get(self.caller, key)).bootstrap}

    @operation(
        "Set the bootstrap script of a project",
        tag="projects",
        body=BootstrapChange,
        returns=BootstrapScript,
    )
    async def put(self, key: str, body: BootstrapChange) -> records.BootstrapScript:
        return await self.manager.sessions.setups.set_bootstrap(
            self.caller, body.script, body.timeout_seconds, key
        )

    @operation(
        "Remove the bootstrap script of a project", tag="projects", status=HTTPStatus.NO_CONTENT
    )
    async def delete(self, key: str) -> None:
        await self.manager.sessions.setups.remove_bootstrap(self.caller, key)


ROUTES = [
    ("/me/environ", MyVariablesHandler),
    (r"/me/environ/(?P<name>[^/]+)", MyVariableHandler),
    ("/me/dotfiles", MyDotfilesHandler),
    (r"/me/dotfiles/(?P<path>[^/]+)", MyDotfileHandler),
    ("/me/bootstrap", MyBootstrapHandler),
    (r"/projects/(?P<key>[^/]+)/environ", ProjectVariablesHandler),
    (r"/projects/(?P<key>[^/]+)/environ/(?P<name>[^/]+)", ProjectVariableHandler),
    (r"/projects/(?P<key>[^/]+)/dotfiles", ProjectDotfilesHandler),
    (r"/projects/(?P<key>[^/]+)/dotfiles/(?P<path>[^/]+)", ProjectDotfileHandler),
    (r"/projects/(?P<key>[^/]+)/bootstrap", ProjectBootstrapHandler),
]
