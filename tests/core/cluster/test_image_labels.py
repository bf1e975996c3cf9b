"""Image labels: parsing, and rejection of invalid labels."""

from __future__ import annotations

import pytest

from bai_services.core.cluster.image_labels import (
    ImageRole,
    Protocol,
    ServicePort,
    check_preopen_ports,
    parse_labels,
    parse_new_labels,
    parse_service_ports,
)
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import ResourceSlots

GIB = 2**30


def labels(**texts: str) -> dict[str, str]:
    return {
        f"ai.backend.{name.replace('__', '.').replace('_', '-')}": t for name, t in texts.items()
    }


def test_labels_are_parsed() -> None:
    facts = parse_labels(
        {
            **labels(
                kernelspec="1",
                role="INFERENCE",
                features="batch query, uid-match private",
                runtime_type="python",
                accelerators="cuda,rocm",
                service_ports="jupyterlab:http:8090,triton:http:[8000,8001],ssh2:tcp:2222",
                endpoint_ports="triton",
                envs__corecount="OMP_NUM_THREADS,NPROC",
                resource__min__cpu="1",
                resource__min__mem="256m",
                resource__max__mem="4g",
                resource__preferred__mem="1g",
                resource__preferred__shmem="64m",
            ),
            "org.example.version": "3",
        }
    )
    assert facts.apps == ["jupyterlab", "triton", "ssh2"]
    assert facts.service_ports[1] == ServicePort("triton", Protocol.HTTP, (8000, 8001), True)
    assert facts.min_slots == ResourceSlots({"cpu": 1000, "mem": GIB // 4})
    assert facts.max_slots == ResourceSlots({"mem": 4 * GIB})
    assert facts.preferred_slots == ResourceSlots({"mem": GIB})
    assert facts.preferred_shared_memory_bytes == 64 * 2**20
    assert facts.role is ImageRole.INFERENCE
    assert facts.is_private
    assert facts.accelerators == ("cuda", "rocm")
    assert facts.corecount_variables == ("OMP_NUM_THREADS", "NPROC")


def test_image_without_labels_has_defaults() -> None:
    facts = parse_labels({})
    assert (facts.apps, facts.min_slots, facts.features) == ([], ResourceSlots(), frozenset())
    assert facts.preferred_shared_memory_bytes is None


def test_pty_service_ports_are_ignored() -> None:
    assert [p.name for p in parse_service_ports("sh:pty:3000, lab:http:8090")] == ["lab"]


@pytest.mark.parametrize(
    "text, part",
    [
        pytest.param("lab", "NAME:", id="missing protocol and port"),
        pytest.param("lab:ftp:8090", "NAME:", id="unknown protocol"),
        pytest.param("la b:http:8090", "NAME:", id="invalid name"),
        pytest.param("lab:http:80", "1025 to 65534", id="privileged port"),
        pytest.param("lab:http:65535", "1025 to 65534", id="port too high"),
        pytest.param("lab:http:x", "1025 to 65534", id="port is not a number"),
        pytest.param("lab:http:٣٠٠٠", "1025 to 65534", id="digits of another script"),
        pytest.param("lab:http:", "1025 to 65534", id="missing port"),
        pytest.param("lab:http:[]", "1025 to 65534", id="empty port list"),
        pytest.param("lab:http:7681", "reserved", id="reserved port"),
        pytest.param("a:http:8090,a:http:8091", "duplicate app", id="duplicate name"),
        pytest.param("a:http:8090,b:tcp:[9000,8090]", "duplicate port", id="duplicate port"),
    ],
)
def test_invalid_service_ports_are_rejected(text: str, part: str) -> None:
    with pytest.raises(InvalidRequest, match=part):
        parse_service_ports(text)


@pytest.mark.parametrize(
    "given, part",
    [
        pytest.param(labels(kernelspec="2"), "only 1", id="unsupported kernelspec"),
        pytest.param(
            labels(nonsense="1"), "unknown label", id="unknown label with the prefix ai.backend"
        ),
        pytest.param(
            labels(features="batch fly"), "'fly': use one of: batch", id="unknown feature"
        ),
        pytest.param({"ai.backend.min-cuda": "new"}, "12.4", id="invalid version"),
        pytest.param(labels(role="BOSS"), "COMPUTE", id="unknown role"),
        pytest.param(
            labels(resource__min__mem="2g", resource__max__mem="1g"),
            "above",
            id="minimum above maximum",
        ),
        pytest.param(
            labels(resource__min__mem="2g", resource__preferred__mem="1g"),
            "not between",
            id="preferred below minimum",
        ),
        pytest.param(labels(resource__min__gold="1"), "resource slot", id="unknown slot"),
        pytest.param(labels(resource__min__mem="much"), "memory", id="invalid amount"),
        pytest.param(
            labels(endpoint_ports="x"), "no service port has this name", id="endpoint without port"
        ),
        pytest.param(labels(envs__corecount="A-B"), "variable name", id="invalid variable name"),
        pytest.param({"x": "y" * 5000}, "longer", id="label too long"),
        pytest.param({f"x{i}": "" for i in range(300)}, "at most 256", id="too many labels"),
    ],
)
def test_invalid_labels_are_rejected(given: dict[str, str], part: str) -> None:
    with pytest.raises(InvalidRequest, match=part):
        parse_labels(given)


def test_port_of_the_jupyter_server_is_rejected_only_for_new_labels() -> None:
    given = labels(service_ports="lab:http:8090,board:http:8888")
    assert parse_labels(given).apps == ["lab", "board"]
    with pytest.raises(InvalidRequest, match="port 8888 is used by the session itself"):
        parse_new_labels(given)


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        ([1024], "ports must be 1025 to 65534"),
        ([65535], "ports must be 1025 to 65534"),
        ([2200], "used by the session itself"),
        ([8888], "used by the session itself"),
        ([6006], "used by the image's app tensorboard"),
        ([8501, 9000, 8501], "duplicate port 8501"),
        (list(range(3000, 3033)), "at most 32"),
    ],
)
def test_invalid_preopen_ports_are_rejected(ports: list[int], why: str) -> None:
    labels = {"ai.backend.service-ports": "tensorboard:http:6006"}
    with pytest.raises(InvalidRequest, match=why) as refused:
        check_preopen_ports(ports, labels)
    assert refused.value.details["field"] == "preopen_ports"


def test_preopen_ports_keep_their_order() -> None:
    assert check_preopen_ports([9000, 8501], {}) == (9000, 8501)
