"""An example for each field of a session request, to test that each layer handles the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bai_services.client import Client

from .manager import Api

# Names of the requested session, and of the session that it depends on.
NAME = "full"
FIRST = "first"
SECRET = {"TOKEN": "swordfish"}


@dataclass(frozen=True, slots=True)
class FieldExample:
    """A value other than the default, and the arguments of `bai session create` that set it."""

    value: Any
    words: Sequence[str] = ()


# ``hub_server`` and ``owner`` are missing: users may not set them.
FIELD_EXAMPLES: Mapping[str, FieldExample] = {
    "name": FieldExample(NAME, (NAME,)),
    "project": FieldExample("research", ("--project", "research")),
    "image": FieldExample("python", ("--image", "python")),
    "resources": FieldExample({"cpu": "2"}, ("-r", "cpu=2")),
    "minimum_resources": FieldExample({"cpu": "2"}, ("--minimum", "cpu=2")),
    "preset": FieldExample("cpu-medium", ("--preset", "cpu-medium")),
    "resource_group": FieldExample("default", ("--resource-group", "default")),
    "mounts": FieldExample([{"vfolder": "data"}], ("--mount", "data")),
    "environ": FieldExample({"SEED": "1", **SECRET}, ("-e", "SEED=1")),
    "secret_environ": FieldExample(list(SECRET), ("--secret-env", *SECRET)),
    "shared_memory": FieldExample("128m", ("--shared-memory", "128m")),
    "type": FieldExample("batch", ("--type", "batch")),
    "startup_command": FieldExample("true", ("--command", "true")),
    "starts_at": FieldExample("10min", ("--starts-at", "10min")),
    "batch_timeout": FieldExample("2h", ("--batch-timeout", "2h")),
    "dependencies": FieldExample([FIRST], ("--depends-on", FIRST)),
    "cluster_size": FieldExample(2, ("--cluster-size", "2")),
    "cluster_mode": FieldExample("multi-node", ("--cluster-mode", "multi-node")),
    "reservation": FieldExample("course", ("--reservation", "course")),
    "agent_list": FieldExample(["a1"], ("--agent", "a1")),
    "agent_selection": FieldExample("preferred", ("--agent-selection", "preferred")),
    "allow_fractional_resource_fragmentation": FieldExample(False),
    "preopen_ports": FieldExample([9000], ("--preopen", "9000")),
    "callback_url": FieldExample(
        "https://callbacks.example.org/", ("--callback-url", "https://callbacks.example.org/")
    ),
    # 0 must be taken as a priority, not as a missing value.
    "priority": FieldExample(0, ("--priority", "0")),
    "job_priority": FieldExample(3, ("--job-priority", "3")),
    "is_preemptible": FieldExample(False, ("--not-preemptible",)),
    "reuse": FieldExample(True, ("--reuse",)),
}


def request_of(*, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the body of a request with the example of each field except ``without``."""
    return {name: one.value for name, one in FIELD_EXAMPLES.items() if name not in without}


async def prepare_admin(api: Api) -> Client:
    """Prepare what the examples need (membership in ``research``, a limit of 4 kernels per session,
    the folder ``data``, a reservation of the only agent), and return the superadmin's client.
    """
    client = await api.client("admin")
    await client.put("/projects/research/members/admin", {})
    for policy in (await client.get("/keypair-policies"))["items"]:
        changes = {"max_containers_per_session": 4}
        await client.patch(f"/keypair-policies/{policy['name']}", changes)
    await client.post("/vfolders", {"name": "data"})
    now = api.world.clock()
    reservation = {
        "name": "course",
        "project": "research",
        "resource_group": "default",
        "resources": {"cpu": 1},
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(hours=2)).isoformat(),
    }
    await client.post("/reservations", reservation)
    return client


async def create_dependency(client: Client) -> None:
    small = {"cpu": "1", "mem": "1g"}
    await client.post("/sessions", {"name": FIRST, "project": "research", "resources": small})
