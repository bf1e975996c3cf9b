"""Jupyter servers in running containers, started with ``docker exec``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import docker

from bai_services.core.coded_text import TextTemplate
from bai_services.core.folders.mounts import HOME
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.launch_plan import LaunchPlan

from .base import EngineError, EngineUnreachable, Exit, Running, attached_environ
from .docker_calls import DockerCalls

NOT_FOUND = 404
# The engine's status code for a container that has ended.
CONFLICT = 409
# Stops the server of the kernel in whose container it runs.
STOP = ("python3", "-I", "-m", "bai_labext.attached")


class AttachedServers:
    """Start, poll and stop servers in containers.

    A process that ``docker exec`` starts has the limits, security profile and capabilities of the
    container, and ends with it.
    """

    def __init__(self, calls: DockerCalls, port: int) -> None:
        self._calls = calls
        self._port = port

    async def start(
        self,
        kernel: Running,
        plan: LaunchPlan,
        environ: Mapping[str, str],
        command: Sequence[str],
    ) -> Running:
        """Start a server in the container of ``kernel``; ``APIError``: Docker rejects it."""
        await self.stop(kernel, 0.0)

        def start(client: docker.APIClient) -> tuple[str, str]:
            container = client.inspect_container(kernel.container_id)
            image = client.inspect_image(container["Image"])["Config"]
            own = [] if plan.injection.entrypoint else list(image.get("Cmd") or ())
            argv = [*(container["Config"]["Entrypoint"] or ()), *(command or own)]
            if not argv:
                raise EngineError(f"the image {plan.image} has no command that starts a server")
            created = client.exec_create(
                kernel.container_id,
                argv,
                stdout=False,
                stderr=False,
                environment=attached_environ(plan, environ),
                workdir=HOME,
                user=f"{plan.uid}:{plan.gid}",
            )
            client.exec_start(created["Id"], detach=True)
            return created["Id"], self._address(container, plan)

        exec_id, address = await self._calls.run(plan.endpoint, plan.user, start, shield=True)
        return replace(kernel, is_attached=True, exec_id=exec_id, url=f"http://{address}")

    async def poll(self, running: Running) -> Exit | None:
        """See ``Engine.poll_attached``."""
        try:
            state = await self._calls.run(
                running.endpoint,
                running.owner,
                lambda client: client.exec_inspect(running.exec_id),
            )
        except docker.errors.APIError as error:
            if error.status_code in (NOT_FOUND, CONFLICT):
                return Exit(None, EndReason.INTERRUPTED, TextTemplate.REMOVED.value)
            raise EngineUnreachable(f"the Docker engine failed: {error.explanation}") from error
        return None if state["Running"] else Exit(state["ExitCode"])

    async def stop(self, running: Running, grace_seconds: float) -> None:
        """Stop the server of a container, with all processes that it has started; idempotent."""

        def stop(client: docker.APIClient) -> None:
            container = client.inspect_container(running.container_id)
            if not container["State"]["Running"]:
                return
            argv = [*(container["Config"]["Entrypoint"] or ()), *STOP]
            argv += [running.kernel_id, f"{grace_seconds:g}"]
            user = container["Config"]["User"]
            created = client.exec_create(running.container_id, argv, user=user)
            client.exec_start(created["Id"])  # waits for its end

        try:
            await self._calls.run(running.endpoint, running.owner, stop, shield=True)
        except docker.errors.APIError as error:
            if error.status_code not in (NOT_FOUND, CONFLICT):
                raise EngineUnreachable(f"the Docker engine failed: {error.explanation}") from error

    def _address(self, container: Mapping[str, Any], plan: LaunchPlan) -> str:
        """Return the address and port at which the Hub reaches the port of the container."""
        settings = container["NetworkSettings"]
        if plan.injection.address:
            published = (settings["Ports"] or {}).get(f"{self._port}/tcp") or ()
            if not published:
                raise EngineError("the container does not publish the port of its server")
            return f"{plan.injection.address}:{published[0]['HostPort']}"
        network = settings["Networks"].get(plan.injection.network or "bridge") or {}
        if not network.get("IPAddress"):
            raise EngineError("the container has no address on its network")
        return f"{network['IPAddress']}:{self._port}"
