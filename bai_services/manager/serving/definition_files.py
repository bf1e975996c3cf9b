"""Read the definitions of a model from its folder."""

from __future__ import annotations

import asyncio

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.serving import definition, deployment_config, service_definition
from bai_services.core.serving.definition import ModelDefinition, parse_definition
from bai_services.core.serving.deployment_config import parse_deployment_config
from bai_services.core.serving.service_definition import parse_service_definition
from bai_services.core.user_input import shown

from ..folders.files import Files


class DefinitionFiles:
    """Reads definition files, at most up to the permitted size and outside the event loop."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def model_definition(self, caller: Caller, folder: str, path: str) -> ModelDefinition:
        """Return the model definition in a folder that the caller may read.

        Raises
        ------
        InvalidRequest
            If the file does not exist or is not valid; the details contain the line.
        """
        text = await self._read(caller, folder, path, definition.MAX_BYTES)
        if text is None:
            raise InvalidRequest(
                f"folder {folder} has no file {shown(path)}", field="definition_file"
            )
        return await asyncio.to_thread(parse_definition, text)

    async def request_defaults(
        self, caller: Caller, folder: str, path: str, variant: str
    ) -> dict[str, object]:
        """Return the defaults for a variant from a file in the directory of the model definition.

        The file is ``deployment-config.yaml`` or, if it does not exist,
        ``service-definition.toml``. If neither exists, the result is empty.
        """
        directory, _, _ = path.rpartition("/")
        for name, parse in (
            (deployment_config.FILE_NAME, parse_deployment_config),
            (service_definition.FILE_NAME, parse_service_definition),
        ):
            path = f"{directory}/{name}".lstrip("/")
            # The maximum size is the same for both files.
            text = await self._read(caller, folder, path, service_definition.MAX_BYTES)
            if text is not None:
                return await asyncio.to_thread(parse, text, variant)
        return {}

    async def _read(self, caller: Caller, folder: str, path: str, limit: int) -> str | None:
        """Return the text of a file, None if it does not exist."""
        # Check the folder first, because a missing folder is an error, but a missing file is not.
        await self._files.find_readable(caller, folder)
        try:
            _, opened = await self._files.download(caller, folder, path)
        except NotFound:
            return None
        try:
            if opened.size > limit:
                raise InvalidRequest(
                    f"{shown(path)} has more than {limit} bytes", field="definition_file"
                )
            content = b"".join([chunk async for chunk in opened.chunks(0, opened.size)])
        finally:
            await opened.close()
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InvalidRequest(
                f"{shown(path)}, line {line}: the file is not UTF-8 text",
                field="definition_file",
                line=line,
            ) from None
