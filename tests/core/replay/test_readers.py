"""Readers of recorded workloads: openb, the Standard Workload Format, the history of a hub."""

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.placement import Mode
from bai_services.core.scheduling.replay.history import read_history
from bai_services.core.scheduling.replay.openb import DEFAULT_RUN_SECONDS, read_nodes, read_pods
from bai_services.core.scheduling.replay.swf import FIELDS, fewest_kernels, read_swf
from bai_services.core.scheduling.replay.workload import reject_invalid_rows

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)


def read_rows(*rows):
    return read_pods([PODS + "\n", *(row + "\n" for row in rows)], "pods.csv")


def test_pod_runs_from_scheduled_to_deletion_time() -> None:
    workload = read_rows("p1,4000,1024,1,460,V100M16|V100M32,LS,Running,10,300,100")
    (job,) = workload.jobs
    assert (job.submitted, job.seconds, job.limit) == (10, 200, None)
    assert dict(job.slots) == {"cpu": 4000, "mem": 2**30, "cuda.shares": 460}
    assert job.device_models == ("V100M16", "V100M32")
    assert (job.user, job.kind) == ("LS", "LS/1")


def test_unscheduled_pod_runs_from_its_creation() -> None:
    (job,) = read_rows("p1,4000,1024,2,1000,,BE,Pending,10,300,").jobs
    assert job.seconds == 290
    assert job.slots["cuda.device"] == 2


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("p2,x,1024,0,0,,LS,Running,0,9,0", "cpu_milli"),
        ("p2,1,-1,0,0,,LS,Running,0,9,0", "memory_mib"),
        ("p2,1,1,2,500,,LS,Running,0,9,0", "gpu_milli"),
        ("p2,1,1,1,0,,LS,Running,0,9,0", "gpu_milli"),
        ("p2,1,1,0,0,,LS,Running,0,5,8", "deletion_time"),
        ("p2,1,1,0,0,,LS,Running,0,,0", "deletion_time"),
        (",1,1,0,0,,LS,Running,0,9,0", "name"),
        ("p1,1,1,0,0,,LS,Running,0,9,0", "name"),
        ("p2,1", "num_gpu"),
    ],
)
def test_invalid_pod_is_reported_and_other_pods_are_read(row, column) -> None:
    workload = read_rows("p1,1,1,0,0,,LS,Running,0,9,0", row, "p3,1,1,0,0,,LS,Running,0,9,0")
    assert [job.id for job in workload.jobs] == ["p1", "p3"]
    (invalid,) = workload.invalid_rows
    assert (invalid.file, invalid.row, invalid.column) == ("pods.csv", 3, column)
    with pytest.raises(InvalidRequest, match=f"pods.csv, row 3, column {column}"):
        reject_invalid_rows(workload.invalid_rows)


def test_pod_list_without_required_columns_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="has no column name, cpu_milli"):
        read_pods(["a,b\n", "1,2\n"], "x.csv")


def test_optional_columns_have_defaults() -> None:
    names = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    (job,) = read_pods([f"{names}\n", "p1,1000,1024,1,500\n"], "x.csv").jobs
    assert (job.submitted, job.seconds, job.device_models) == (0, DEFAULT_RUN_SECONDS, ())
    (job,) = read_pods([f"{names},creation_time\n", "p1,1,1,0,0,70\n"], "x.csv").jobs
    assert (job.submitted, job.seconds) == (70, DEFAULT_RUN_SECONDS)
    rows = ["sn,cpu_milli,memory_mib,gpu\n", "n1,1000,1024,1\n"]
    (agent,), invalid_rows = read_nodes(rows, "nodes.csv")
    assert ([device.model for device in agent.devices], invalid_rows) == ([""], [])


def test_devices_of_a_node_have_the_model_of_its_row() -> None:
    rows = ["sn,cpu_milli,memory_mib,gpu,model\n", "n2,64000,1024,2,T4\n", "n1,1,1,x,T4\n"]
    (agent,), (invalid,) = read_nodes(rows, "nodes.csv")
    assert agent.capacity == {"cpu": 64000, "mem": 2**30}
    assert [device.model for device in agent.devices] == ["T4", "T4"]
    assert str(invalid) == "nodes.csv, row 3, column gpu: 'x' is not a whole number"


def swf_line(**values):
    row = dict.fromkeys(FIELDS, -1)
    row |= {"job number": 1, "submit time": 0, "run time": 60, "allocated processors": 4}
    row |= {name.replace("_", " "): value for name, value in values.items()}
    return " ".join(str(row[name]) for name in FIELDS)


def test_job_has_requested_processors_and_at_most_requested_time() -> None:
    line = swf_line(requested_processors=8, requested_time=50, user_id=3, group_id=2)
    workload = read_swf(["; Version: 2.2", "; MaxProcs: 16", line], "x.swf")
    (job,) = workload.jobs
    assert (job.slots["cpu"], job.kernels, job.seconds, job.limit) == (8000, 1, 50, 50)
    assert (job.user, job.project) == ("3", "2")
    assert [agent.capacity["cpu"] for agent in workload.agents] == [16_000]


def test_job_with_more_processors_than_a_node_is_a_multi_node_session() -> None:
    header = ["; MaxNodes: 3", "; MaxProcs: 14"]
    workload = read_swf([*header, swf_line(requested_processors=10)], "x.swf")
    (job,) = workload.jobs
    assert (job.kernels, job.slots["cpu"], job.mode) == (5, 2000, Mode.MULTI_NODE)
    # 14 cores cannot be divided evenly over 3 nodes, so the last one gets fewer.
    assert [agent.capacity["cpu"] for agent in workload.agents] == [5000, 5000, 4000]


@pytest.mark.parametrize(
    ("processors", "cores_per_agent", "kernels"),
    [(1, 4, 1), (4, 4, 1), (8, 4, 2), (6, 4, 2), (7, 4, 7)],
)
def test_job_is_split_into_fewest_equal_kernels(processors, cores_per_agent, kernels) -> None:
    assert fewest_kernels(processors, cores_per_agent) == kernels


def test_jobs_without_a_complete_run_are_skipped_and_counted() -> None:
    lines = [swf_line(), swf_line(status=5, run_time=0), swf_line(run_time=-1)]
    lines += [swf_line(status=2), swf_line(status=3)]
    workload = read_swf(lines, "x.swf")
    assert len(workload.jobs) == 1
    assert workload.skipped == {
        "cancelled before it ran": 1,
        "run time unknown": 1,
        "part of an interrupted job": 2,
    }
    assert not workload.invalid_rows


@pytest.mark.parametrize(
    ("line", "column"),
    [
        (swf_line(run_time="soon"), "run time"),
        (swf_line(submit_time=-1), "submit time"),
        (swf_line(allocated_processors=-1), "requested processors"),
        (swf_line(user_id=-7), "user id"),
        (swf_line(user_id="nan"), "user id"),
        ("1 2 3", "run time"),
        (swf_line() + " 99", "think time"),
        (swf_line(), "job number"),
    ],
)
def test_invalid_job_is_reported_with_its_line(line, column) -> None:
    workload = read_swf(["; MaxProcs: 8", "", swf_line(), line], "x.swf")
    assert len(workload.jobs) == 1
    assert [(row.row, row.column) for row in workload.invalid_rows] == [(4, column)]


SESSION = {
    "id": "s1",
    "resource_group": "gpu",
    "requested": {"cpu": "2", "mem": "4g", "cuda.shares": "0.5"},
    "created_at": "2026-01-01T00:00:00+00:00",
    "started_at": "2026-01-01T00:01:00+00:00",
    "terminated_at": "2026-01-01T01:01:00+00:00",
    "owner": "ann",
    "type": "interactive",
    "image": "lab/base:2",
    "cluster_size": 2,
    "cluster_mode": "multi-node",
}
AGENT = {
    "id": "a1",
    "resource_group": "gpu",
    "slots": {"cpu": "8", "mem": "32g", "cuda.device": "1"},
    "devices": [{"id": "g0", "family": "cuda", "model": "T4", "capacity": "1", "numa_node": None}],
}


def test_hub_history_becomes_jobs() -> None:
    later = {**SESSION, "id": "s2", "created_at": "2026-01-01T00:30:00+00:00"}
    later |= {"started_at": "2026-01-01T00:41:00+00:00", "terminated_at": None}
    never = {**SESSION, "id": "s3", "started_at": None}
    other = {**SESSION, "id": "s4", "resource_group": "cpu"}
    document = {"sessions": [later, SESSION, never, other], "agents": [AGENT]}
    workload = read_history(document, "hub", "gpu")
    first, second = workload.jobs
    assert (first.id, first.submitted, first.seconds) == ("s1", 0, 3600)
    # The second session has no recorded end. The reader assumes that it ends at the last event of
    # the record, 1200 s after its start.
    assert (second.id, second.submitted, second.seconds) == ("s2", 1800, 1200)
    assert (first.user, first.kind, first.kernels) == ("ann", "interactive/lab/base", 2)
    assert first.slots["cuda.shares"] == 500
    assert workload.skipped == {"never started": 1, "of another resource group": 1}
    (agent,) = workload.agents
    assert agent.devices[0].model == "T4"


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"created_at": None}, "created_at"),
        ({"started_at": "yesterday"}, "started_at"),
        ({"terminated_at": "2025-01-01T00:00:00+00:00"}, "terminated_at"),
        ({"terminated_at": "2026-01-02T00:00:00"}, "terminated_at"),
        ({"requested": {"cpu": "many"}}, "requested"),
        ({"requested": None}, "requested"),
        ({"resource_group": None}, "resource_group"),
        ({"id": 7}, "id"),
        ({"cluster_size": "two"}, "cluster_size"),
    ],
)
def test_invalid_session_is_reported(change, column) -> None:
    workload = read_history([{**SESSION, **change}, SESSION, "x"], "hub", "gpu")
    assert len(workload.jobs) == 1
    assert [(row.row, row.column) for row in workload.invalid_rows] == [(1, column), (3, "id")]


def test_duplicate_sessions_and_agents_of_a_history_are_reported() -> None:
    document = {"sessions": [SESSION, SESSION], "agents": [AGENT, AGENT]}
    workload = read_history(document, "hub", "gpu")
    assert (len(workload.jobs), len(workload.agents)) == (1, 1)
    assert [str(row) for row in workload.invalid_rows] == [
        "hub, row 2, column id: duplicate 's1'",
        "hub (agents), row 2, column id: duplicate 'a1'",
    ]


@pytest.mark.parametrize(
    ("node", "is_valid"),
    [(None, True), (-1, True), (3, True), ("0", False), (1.5, False), (True, False), (-2, False)],
)
def test_numa_node_of_a_device_is_checked(node, is_valid) -> None:
    device = {**AGENT["devices"][0], "numa_node": node}
    document = {"sessions": [SESSION], "agents": [{**AGENT, "devices": [device]}]}
    columns = [row.column for row in read_history(document, "hub", "gpu").invalid_rows]
    assert columns == ([] if is_valid else ["numa_node"])


def test_history_of_several_groups_requires_a_choice() -> None:
    sessions = [SESSION, {**SESSION, "resource_group": "cpu"}]
    with pytest.raises(InvalidRequest, match="cpu, gpu; choose one with --resource-group"):
        read_history({"items": sessions}, "x.json")


def test_document_without_sessions_is_not_a_history() -> None:
    with pytest.raises(InvalidRequest, match="not a history of a hub"):
        read_history({"a": 1}, "x.json")
