"""Resource usage from Docker's statistics."""

from __future__ import annotations

from bai_services.agent.docker.container_usage import Meter


def test_usage_is_read_from_statistics_without_page_cache() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        "memory_stats": {"usage": 100, "limit": 1000, "stats": {"inactive_file": 30}},
        "networks": {"eth0": {"rx_bytes": 1, "tx_bytes": 2}, "eth1": {"rx_bytes": 3}},
        "blkio_stats": {
            "io_service_bytes_recursive": [{"op": "Read", "value": 5}, {"op": "write", "value": 7}]
        },
        "pids_stats": {"current": 4},
    }
    assert Meter().read("c", stats) == {
        "cpu_seconds": 2.5,
        "mem_bytes": 70,
        "mem_limit_bytes": 1000,
        "net_rx_bytes": 4,
        "net_tx_bytes": 2,
        "io_read_bytes": 5,
        "io_write_bytes": 7,
        "processes": 4,
    }


def test_memory_is_0_if_an_ended_container_has_no_memory_statistics() -> None:
    meter = Meter()
    meter.read("c", {"cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}}})
    assert meter.read("c", {"blkio_stats": {"io_service_bytes_recursive": None}})["mem_bytes"] == 0


def test_values_that_are_unknown_are_missing() -> None:
    meter = Meter()
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        # The two empty values are those of a Linux kernel that does not measure block I/O, and of a
        # container without a network.
        "blkio_stats": {"io_service_bytes_recursive": []},
        "networks": {},
    }
    first = meter.read("c", stats)
    assert not first.keys() & {"cpu_cores", "net_rx_bytes", "io_read_bytes", "io_write_bytes"}
    assert meter.read("c", stats)["cpu_cores"] == 0
