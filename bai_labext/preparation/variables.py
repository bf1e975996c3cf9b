"""Save the variables of running notebook kernels, and list what was saved."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_client.session import Session
from jupyter_core.utils import ensure_async

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
# Files of a saved kernel.
VARIABLES, RESTORE = "variables.json", "restore.py"
MAX_KERNELS = 20
MAX_ENTRIES = 50
MAX_VARIABLES_FILE_BYTES = 1024 * 1024
# After an interrupt, a kernel has this time to write the list of what it has saved.
INTERRUPT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """The saved variables of one kernel; ``path`` is the document that used the kernel."""

    path: str
    folder: str
    saved: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "folder": self.folder,
            "saved": list(self.saved),
            "skipped": list(self.skipped),
        }


@dataclass(slots=True)
class Variables:
    """Dumps variables to ``folder``; a dump replaces the earlier one."""

    folder: Path
    max_bytes: int
    settings: Mapping[str, Any] = field(repr=False)

    async def save(self, seconds: float) -> list[SavedKernel]:
        """Save the variables of all Python kernels within ``seconds``."""
        await asyncio.to_thread(shutil.rmtree, self.folder, True)
        documents = await self._documents()
        kernels = self.settings["kernel_manager"]
        models = await ensure_async(kernels.list_kernels())
        chosen = [model for model in models if model["id"] in documents][:MAX_KERNELS]
        if not chosen or seconds <= 0:
            return []
        share = self.max_bytes // len(chosen)
        jobs = [
            self._try_save(number, model["id"], documents[model["id"]], share, seconds)
            for number, model in enumerate(chosen)
        ]
        return list(await asyncio.gather(*jobs))

    async def save_again(self, seconds: float, earlier: Sequence[SavedKernel]) -> list[SavedKernel]:
        """Replace the dump ``earlier``, unless it contains variables that the new dump lacks."""
        target, staged = self.folder, self.folder.with_name(f"{self.folder.name}.new")
        again = await replace(self, folder=staged).save(seconds)
        if _lacks(again, earlier):
            await asyncio.to_thread(shutil.rmtree, staged, True)
            return list(earlier)
        await asyncio.to_thread(shutil.rmtree, target, True)
        if again:
            await asyncio.to_thread(staged.rename, target)
        return [
            replace(kernel, folder=f"{target.name}/{Path(kernel.folder).name}") for kernel in again
        ]

    async def _documents(self) -> dict[str, str]:
        """Return the path of the document of each kernel."""
        sessions = await ensure_async(self.settings["session_manager"].list_sessions())
        return {one["kernel"]["id"]: str(one["path"]) for one in sessions if one.get("kernel")}

    async def _try_save(
        self, number: int, kernel_id: str, path: str, max_bytes: int, seconds: float
    ) -> SavedKernel:
        """Save the variables of one kernel; an error does not affect other kernels."""
        try:
            return await self._save_kernel(number, kernel_id, path, max_bytes, seconds)
        except Exception as error:
            log.exception("variables of %s were not saved", path)
            name = f"{self.folder.name}/{number}"
            return SavedKernel(path, name, skipped=(f"* ({type(error).__name__}: {error})",))

    async def _save_kernel(
        self, number: int, kernel_id: str, path: str, max_bytes: int, seconds: float
    ) -> SavedKernel:
        folder = self.folder / str(number)
        kernel = self.settings["kernel_manager"].get_kernel(kernel_id)
        name = f"{self.folder.name}/{number}"
        language = getattr(kernel.kernel_spec, "language", "")
        if language.lower() != "python":
            return SavedKernel(path, name, skipped=(f"* (the kernel is not Python: {language})",))
        await asyncio.to_thread(_create_folder, folder)
        source = (HERE / "dump_variables.py").read_text()
        limit = max(seconds - INTERRUPT_SECONDS, 0.5)
        call = f"_bai_dump_variables({str(folder)!r}, {max_bytes}, {limit})"
        code = f"{source}\n{call}\ndel _bai_dump_variables"
        # By default, all clients of a kernel share a session id, so their message ids can be equal.
        keys = kernel.session
        session = Session(key=keys.key, signature_scheme=keys.signature_scheme)
        client = kernel.client(session=session)
        client.start_channels()
        try:
            await _execute(kernel, client, code, limit)
        finally:
            client.stop_channels()
        return await asyncio.to_thread(_read, folder, path, name)


def _lacks(again: Sequence[SavedKernel], earlier: Sequence[SavedKernel]) -> bool:
    """Return whether variables in ``earlier`` exist in the kernels, but could not be saved again.

    An entry ``*`` of ``skipped`` stands for all variables of a kernel.
    """
    skipped = {one.path: {entry.partition(" (")[0] for entry in one.skipped} for one in again}
    return any(
        one.saved and (one.path not in skipped or skipped[one.path] & {"*", *one.saved})
        for one in earlier
    )


def _create_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(HERE / "restore_variables.py", folder / RESTORE)


async def _execute(kernel: Any, client: Any, code: str, seconds: float) -> None:
    """Execute ``code`` in a kernel; interrupt the kernel if it takes longer than ``seconds``."""

    def send() -> str:
        return str(client.execute(code, silent=True, store_history=False, allow_stdin=False))

    message = send()

    async def done() -> None:
        nonlocal message
        while True:
            reply = await ensure_async(client.get_shell_msg(timeout=None))
            if reply["parent_header"].get("msg_id") != message:
                continue
            if reply["content"].get("status") != "aborted":
                return
            # The previous execution ended with an error, which aborts all requests that the
            # kernel had received by then. An interrupt also causes such an error.
            message = send()

    for limit in (seconds, INTERRUPT_SECONDS):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await done()
                return
        # A busy kernel has not started ``code`` yet; the interrupt ends its current execution.
        await ensure_async(kernel.interrupt_kernel())


def _read(folder: Path, path: str, name: str) -> SavedKernel:
    try:
        file = folder / VARIABLES
        if file.stat().st_size > MAX_VARIABLES_FILE_BYTES:
            raise ValueError("too many variables")
        content = json.loads(file.read_text())
        saved = [str(one["name"]) for one in content["saved"]]
        skipped = [f"{one['name']} ({one['reason']})" for one in content["skipped"]]
    except (OSError, ValueError, KeyError, TypeError):
        return SavedKernel(path, name, skipped=("* (the kernel did not respond in time)",))
    return SavedKernel(path, name, _cut(saved), _cut(skipped))


def _cut(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name[:300] for name in names[:MAX_ENTRIES])
