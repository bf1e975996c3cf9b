"""Read the files of recipes from folders and git repositories."""

from __future__ import annotations

import asyncio
import functools
import ssl
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.recipes import FILES, MAX_RECIPE_BYTES, check_recipe
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.imports.sources import SourceKind, check_source, check_token
from bai_services.core.models.imports import is_safe_path
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.core.user_input import shown
from bai_services.storage.transfers.git_process import fetch_repository
from bai_services.storage.transfers.git_worker import Job

from ..accounts import authorizer
from ..folders.files import Files
from ..folders.quotas import location_of
from ..models.hub_client import HubClient
from .runner import allowed_addresses, pinned

# A repository is fetched completely, because git servers need not support partial fetches.
MAX_REPOSITORY_BYTES = 64 * 2**20
MAX_CONCURRENT = 2


class Recipes:
    """Reads recipes; nothing is stored, and nothing is run on the machine of the manager."""

    def __init__(
        self,
        targets: AllowedTargets,
        client: HubClient,
        files: Files,
        *,
        builds_recipes: bool,
    ) -> None:
        self._targets = targets
        self._client = client
        self._files = files
        self._builds_recipes = builds_recipes
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def read(self, caller: Caller, spec: Mapping[str, Any]) -> dict[str, str]:
        """Return the files of the recipe in ``directory`` of a folder or repository.

        Raises
        ------
        Forbidden
            If the installation does not build recipes, or the caller may not read the folder.
        NotFound
            If there is no such folder.
        InvalidRequest
            If the source is not valid, the repository cannot be fetched, or the files are not a
            valid recipe.
        """
        authorizer.require(caller, "custom-image.write")
        if not self._builds_recipes:
            raise Forbidden(refusal(RefusalText.RECIPES_DISABLED), action="custom-image.write")
        directory = str(spec.get("directory") or "").strip("/")
        if directory and not is_safe_path(directory):
            raise InvalidRequest(
                f"{shown(directory)} is not a valid path of a directory", field="directory"
            )
        if bool(spec.get("vfolder")) == bool(spec.get("repo")):
            raise InvalidRequest("give either vfolder or repo", field="repo")
        if spec.get("vfolder"):
            found = await self._from_folder(caller, str(spec["vfolder"]), directory)
        else:
            async with self._slots:
                found = await self._from_repository(spec, directory)
        return check_recipe({name: _text(name, content) for name, content in found.items()})

    async def _from_folder(self, caller: Caller, key: str, directory: str) -> dict[str, bytes]:
        folder = await self._files.find_readable(caller, key)
        host, location = self._files.host(folder), location_of(folder)
        found: dict[str, bytes] = {}
        for name in FILES:
            try:
                opened = await host.open_download(location, _path(directory, name))
            except NotFound:
                continue
            try:
                # One more byte than allowed: the check of the size then fails.
                chunks = opened.chunks(0, min(opened.size, MAX_RECIPE_BYTES + 1))
                found[name] = b"".join([chunk async for chunk in chunks])
            finally:
                await opened.close()
        return found

    async def _from_repository(self, spec: Mapping[str, Any], directory: str) -> dict[str, bytes]:
        source = check_source({**spec, "kind": SourceKind.GIT, "path": ""}, self._targets)
        token = check_token(str(spec.get("token") or ""), source)
        addresses = await asyncio.to_thread(allowed_addresses, self._client, source.url)
        with tempfile.TemporaryDirectory(prefix="bai-recipe-") as made:
            job = Job(
                url=source.url,
                revision=source.branch,
                token=token,
                addresses=pinned(source.url, addresses),
                ca_file=ssl.get_default_verify_paths().cafile or "",
                directory=f"{made}/git",
                archive=f"{made}/files.tar",
                max_bytes=MAX_REPOSITORY_BYTES,
            )
            await fetch_repository(job, lambda received_bytes: None)
            read = functools.partial(_members, Path(job.archive), directory)
            return await asyncio.to_thread(read)


def _members(archive: Path, directory: str) -> dict[str, bytes]:
    """Return the files of a recipe from an archive, which has neither links nor devices."""
    names = {_path(directory, name): name for name in FILES}
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            name = names.get(member.name)
            content = opened.extractfile(member) if name and member.isreg() else None
            if name and content is not None:
                found[name] = content.read(MAX_RECIPE_BYTES + 1)
    return found


def _path(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} is not a text file in UTF-8", field="recipe") from None
