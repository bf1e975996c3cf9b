"""Factory of new resources for the requests of a test: one method per ``{placeholder}``."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Self

from bai_services.client import Client
from bai_services.core.cluster.custom_images import CommitStatus
from bai_services.db.tables.cluster import custom_images
from bai_services.db.tables.provisioning import provisioned_machines
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class ResourceFactory:
    """Creates resources.

    If a resource has an owner, the owner is ``user``. If it belongs to a domain, the domain is
    ``default``.

    The method with the name of a placeholder creates a resource and returns its key. The methods
    ``fresh``, ``yesterday`` and ``upload`` only return a value.
    """

    # The user who becomes a member of new projects.
    member = "user"

    def __init__(self, api: Api, admin: Client, user: Client) -> None:
        self._api = api
        self._admin = admin
        self._user = user
        self._numbers = itertools.count()
        self._upload = ""

    @classmethod
    async def of(cls, api: Api) -> Self:
        return cls(api, await api.client("admin"), await api.client("user"))

    async def fill(self, template: str) -> str:
        """Replace each ``{placeholder}`` by the result of the method of the same name."""
        text = template
        for name in PLACEHOLDER.findall(template):
            create: Callable[[], Awaitable[str]] = getattr(self, name)
            text = text.replace(f"{{{name}}}", await create())
        return text

    async def fill_body(self, body: Any) -> Any:
        """Replace the placeholders in all string values of a JSON value."""
        if isinstance(body, str):
            return await self.fill(body)
        if isinstance(body, dict):
            return {name: await self.fill_body(value) for name, value in body.items()}
        if isinstance(body, list):
            return [await self.fill_body(value) for value in body]
        return body

    async def fresh(self) -> str:
        """Return an unused name."""
        return f"t{next(self._numbers)}-{secrets.token_hex(3)}"

    async def yesterday(self) -> str:
        """Return the time one day ago in ISO 8601."""
        return (self._api.world.clock() - timedelta(days=1)).isoformat()

    async def template(self) -> str:
        body = {"name": await self.fresh(), "request": {}}
        return str((await self._user.post("/session-templates", body))["id"])

    async def custom_image(self) -> str:
        """A completed commit of a session of the owner."""
        return await self._commit(CommitStatus.DONE)

    async def open_commit(self) -> str:
        return await self._commit(CommitStatus.PENDING)

    async def _commit(self, status: CommitStatus) -> str:
        """Insert a row: REST creates it from a running session only."""
        world, name = self._api.world, await self.fresh()
        me, now = await self._user.get("/me"), world.clock()
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "changed_at": now,
            "name": name,
            "image": f"localhost/custom/{name}:1",
            "base_image": "py:1",
            "architecture": "x86_64",
            "owner_id": me["id"],
            "project_id": await world.project_id(f"{me['domain']}/default"),
            "visibility": "private",
            "labels": {},
            "session_id": name,
            "kernel_id": name,
            "session_name": name,
            "agent_id": "none",
            "status": status,
        }
        async with world.manager.database.write() as tx:
            await tx.execute(custom_images.insert().values(values))
        return str(values["id"])

    async def overflow_rule(self) -> str:
        """A new project with an overflow rule."""
        project = await self.project()
        target = await self.fresh()
        superadmin = await self._api.client("admin")
        await superadmin.post("/resource-groups", {"name": target})
        rule = {"project": project, "from_group": "default", "to_group": target}
        return str((await self._admin.post("/overflow-rules", rule))["id"])

    async def budget(self) -> str:
        """A new project with a budget."""
        project = await self.project()
        await self._admin.post("/budgets", {"project": project, "amount": 1})
        return project

    async def schedule(self) -> str:
        body = {"name": await self.fresh(), "start": "daily 08:00"}
        return str((await self._user.post("/schedules", body))["id"])

    async def endpoint(self) -> str:
        settings = {"variant": "cmd", "command": "x"}
        body = {"name": await self.fresh(), "settings": settings}
        return str((await self._user.post("/endpoints", body))["id"])

    async def replica(self) -> str:
        """A replica as ``ENDPOINT/replicas/ID``."""
        key = await self.endpoint()
        await self._api.world.manager.serving.runner.step()
        (replica,) = (await self._user.get(f"/endpoints/{key}/replicas"))["items"]
        return f"{key}/replicas/{replica['id']}"

    async def pipeline(self) -> str:
        """A pipeline of ``user`` with a folder."""
        tasks = "tasks: [{name: check, kind: approval}]"
        text = f"version: 1\nname: {await self.fresh()}\n{tasks}"
        return str((await self._user.post("/pipelines", {"definition": text}))["id"])

    async def pipeline_run(self) -> str:
        """A waiting run of a pipeline of ``user``."""
        path = f"/pipelines/{await self.pipeline()}/runs"
        return str((await self._user.post(path, {}))["id"])

    async def pipeline_schedule(self) -> str:
        body = {"pipeline": await self.pipeline(), "name": "nightly", "start": "daily 02:00"}
        return str((await self._user.post("/pipeline-schedules", body))["id"])

    async def pipeline_template(self) -> str:
        tasks = "tasks: [{name: check, kind: approval}]"
        text = f"version: 1\nname: {await self.fresh()}\n{tasks}"
        return str((await self._user.post("/pipeline-templates", {"definition": text}))["id"])

    async def pipeline_trigger(self) -> str:
        body = {"pipeline": await self.pipeline(), "name": "push"}
        return str((await self._user.post("/pipeline-triggers", body))["id"])

    async def cancelled_run(self) -> str:
        key = await self.pipeline_run()
        await self._user.delete(f"/pipeline-runs/{key}")
        return key

    async def chat(self) -> str:
        return str((await self._user.post("/chats", {"cards": [{}]}))["id"])

    async def store(self) -> str:
        """A model store of domain ``default``; ``user`` is a member."""
        spec = {"name": await self.fresh(), "domain": "default", "type": "model-store"}
        key = str((await self._admin.post("/projects", spec))["id"])
        await self._admin.put(f"/projects/{key}/members/{self.member}")
        return key

    async def model(self) -> str:
        """A cloneable folder of a model store, without a definition."""
        spec = {"name": await self.fresh(), "project": await self.store(), "cloneable": True}
        key = str((await self._admin.post("/vfolders", spec))["id"])
        await self._admin.post(f"/models/{key}/refresh", {})
        return key

    async def model_import(self) -> str:
        """An import that ``user`` has requested."""
        body = {"repository": "org/tiny", "project": await self.store(), "folder": "tiny"}
        return str((await self._user.post("/model-imports", body))["id"])

    async def folder_import(self) -> str:
        """An import that ``user`` has requested."""
        body = {"repo": "https://example.org/a.git", "folder": await self.fresh()}
        return str((await self._user.post("/folder-imports", body))["id"])

    async def domain(self) -> str:
        return await self._named("/domains", {})

    async def project(self) -> str:
        created = await self._admin.post("/projects", {"name": await self.fresh()})
        return str(created["id"])

    async def other_user(self) -> str:
        name = await self.fresh()
        await self._admin.post("/users", {"username": name, "email": f"{name}@example.com"})
        return name

    async def sign_up_invitation(self) -> str:
        return str((await self._admin.post("/sign-up-invitations", {}))["id"])

    async def keypair(self) -> str:
        """An additional keypair of ``user``."""
        created = await self._admin.post("/keypairs", {"user": "user"})
        return str(created["access_key"])

    async def keypair_policy(self) -> str:
        return await self._named("/keypair-policies", {})

    async def user_policy(self) -> str:
        return await self._named("/user-policies", {})

    async def project_policy(self) -> str:
        return await self._named("/project-policies", {})

    async def group(self) -> str:
        return await self._named("/resource-groups", {"engine": "process"})

    async def linked_group(self) -> str:
        """A resource group that is linked to domain ``default``."""
        name = await self.group()
        await self._admin.put(f"/resource-groups/{name}/links/domain/default")
        return name

    async def agent(self) -> str:
        """An agent without sessions."""
        name = await self.fresh()
        await FakeAgent(self._api.agent, name).beat()
        return name

    async def agent_invitation(self) -> str:
        return str((await self._admin.post("/agent-invitations", {}))["id"])

    async def provisioned_machine(self) -> str:
        """A machine that is being started."""
        database = self._api.world.manager.database
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._api.world.clock(),
            "resource_group": "default",
            "status": "starting",
            "status_changed_at": self._api.world.clock(),
            "slots": {"cpu": 1000},
            "reference": "vm-1",
            "reason": "",
            "message": "",
        }
        async with database.write() as tx:
            await tx.execute(provisioned_machines.insert().values(values))
        return str(values["id"])

    async def joined_agent(self) -> str:
        """An agent that has joined with an invitation and has sent no heartbeat."""
        name = await self.fresh()
        token = (await self._admin.post("/agent-invitations", {}))["token"]
        credential = f"bai-agent-{secrets.token_urlsafe(32)}"
        body = {"token": token, "agent_id": name, "credential": credential}
        await self._api.nobody.post("/agent-joins", body)
        return name

    async def image(self) -> str:
        created = await self._admin.post("/images", {"name": f"test/{await self.fresh()}:1"})
        return str(created["id"])

    async def alias(self) -> str:
        alias = await self.fresh()
        await self._admin.post("/image-aliases", {"alias": alias, "image": await self.image()})
        return alias

    async def image_registry(self) -> str:
        """A registry at an address that scans may not reach."""
        name = await self.fresh()
        spec = {"name": name, "url": f"https://{name}.invalid"}
        await self._admin.post("/image-registries", spec)
        return name

    async def preset(self) -> str:
        spec = {"name": await self.fresh(), "resource_slots": {"cpu": "1", "mem": "1g"}}
        return str((await self._admin.post("/presets", spec))["id"])

    async def idle_checker(self) -> str:
        name = await self.fresh()
        body = {"name": name, "type": "utilization", "max_seconds": 600}
        await self._admin.post("/idle-checkers", {**body, "thresholds": {"cpu_util": 5}})
        return name

    async def idle_binding(self) -> str:
        """A binding to domain ``default`` by a superadmin."""
        return await self._bind(self._admin)

    async def idle_binding_of_admin(self) -> str:
        """A binding to domain ``default`` by its domain admin."""
        return await self._bind(await self._api.client("domain-admin"))

    async def _bind(self, client: Client) -> str:
        body = {"checker": await self.idle_checker(), "scope": "domain", "scope_key": "default"}
        return str((await client.post("/idle-checker-bindings", body))["id"])

    async def folder(self) -> str:
        created = await self._user.post("/vfolders", {"name": await self.fresh()})
        return str(created["id"])

    async def folder_with_file(self) -> str:
        """A folder with a file ``f``."""
        key = await self.folder()
        path = f"/vfolders/{key}/content"
        await self._user.call("PUT", path, query={"path": "f"}, content=b"x")
        return key

    async def shared_folder(self) -> str:
        """A folder that ``user`` has shared with ``monitor``, read only."""
        key = await self.folder()
        grant = await self._user.put(f"/vfolders/{key}/grants/monitor", {"permission": "ro"})
        monitor = await self._api.client("monitor")
        await monitor.post(f"/vfolder-invitations/{grant['invitation_id']}/accept")
        return key

    async def cloneable_folder(self) -> str:
        key = await self.folder()
        await self._user.patch(f"/vfolders/{key}", {"cloneable": True})
        return key

    async def upload_folder(self) -> str:
        """A folder in which ``user`` has started an upload."""
        key = await self.folder()
        response = await self._user.http.post(
            f"/vfolders/{key}/uploads", params={"path": "f"}, headers={"Upload-Length": "5"}
        )
        self._upload = response.headers["Location"].rpartition("/")[2]
        return key

    async def upload(self) -> str:
        """The id of the upload in the folder that ``upload_folder`` created last."""
        return self._upload

    async def invitation(self) -> str:
        """An invitation of ``user2`` by ``user``."""
        path = f"/vfolders/{await self.folder()}/invitations"
        return str((await self._user.post(path, {"user": "user2"}))["id"])

    async def user_scope(self) -> str:
        """The quota scope of ``user`` on the host ``local``."""
        created = await self._user.post("/vfolders", {"name": await self.fresh()})
        return f"user:{created['owner_id']}"

    async def trashed_folder(self) -> str:
        key = await self.folder()
        await self._user.delete(f"/vfolders/{key}")
        return key

    async def session(self) -> str:
        """A session that ``user`` has just created."""
        created = await self._user.post("/sessions", {"name": await self.fresh()})
        return str(created["id"])

    async def announcement(self) -> str:
        """An announcement for domain ``default``."""
        spec = {"title": await self.fresh(), "audience": "domain", "target": "default"}
        return str((await self._admin.post("/announcements", spec))["id"])

    async def webhook(self) -> str:
        """A webhook for domain ``default``; callbacks may not reach its address."""
        spec = {"url": "https://name.invalid/", "scope": "domain", "domain": "default"}
        return str((await self._admin.post("/webhooks", spec))["id"])

    async def maintenance(self) -> str:
        """A maintenance of a new resource group."""
        spec = {"reason": "x", "scope": "group", "target": await self.group()}
        return str((await self._admin.post("/maintenances", spec))["id"])

    async def _named(self, path: str, facts: dict[str, Any]) -> str:
        name = await self.fresh()
        await self._admin.post(path, {"name": name, **facts})
        return name


class ReusedResources(ResourceFactory):
    """Resources that are created once and reused until ``forget`` is called."""

    def __init__(self, api: Api, admin: Client, user: Client) -> None:
        super().__init__(api, admin, user)
        self._created: dict[str, str] = {}

    async def fill(self, template: str) -> str:
        text = template
        for name in PLACEHOLDER.findall(template):
            if name not in self._created or name in ("fresh", "upload"):
                self._created[name] = await getattr(self, name)()
            text = text.replace(f"{{{name}}}", self._created[name])
        return text

    def forget(self, request: str, body: Any) -> None:
        """Create the resources of a request anew at their next use, because it changed them.

        Resources of other placeholders are kept.
        """
        for name in PLACEHOLDER.findall(f"{request} {json.dumps(body)}"):
            self._created.pop(name, None)
