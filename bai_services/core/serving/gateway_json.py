"""Conversion of the routing table of gateways to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .gateway_records import EndpointRoute, Protocol, ReplicaRoute, RoutingTable, TokenRoute


def table_as_json(table: RoutingTable) -> dict[str, Any]:
    return asdict(table)


def table_from_json(document: Mapping[str, Any]) -> RoutingTable:
    """Return the table from a JSON object of ``table_as_json``; ignore unknown fields.

    Raises
    ------
    KeyError, TypeError, ValueError
        If a field is missing, or has another type or an unknown value.
    """
    endpoints = tuple(_endpoint(endpoint) for endpoint in document["endpoints"])
    return RoutingTable(str(document["version"]), endpoints)


def _endpoint(fields: Mapping[str, Any]) -> EndpointRoute:
    known = {name: fields[name] for name in EndpointRoute.__slots__}
    known["weights"] = {str(name): int(weight) for name, weight in fields["weights"].items()}
    known["protocol"] = Protocol(fields["protocol"])
    known["replicas"] = tuple(_replica(replica) for replica in fields["replicas"])
    known["tokens"] = tuple(_token(token) for token in fields["tokens"])
    return EndpointRoute(**known)


def _replica(fields: Mapping[str, Any]) -> ReplicaRoute:
    known = {name: fields[name] for name in ReplicaRoute.__slots__}
    return ReplicaRoute(**{**known, "protocol": Protocol(fields["protocol"])})


def _token(fields: Mapping[str, Any]) -> TokenRoute:
    known = {name: fields[name] for name in TokenRoute.__slots__}
    return TokenRoute(**{**known, "networks": tuple(fields["networks"])})
