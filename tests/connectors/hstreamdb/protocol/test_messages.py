"""Messages have the bytes of the published definition, in a package of their own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from google.protobuf import json_format

from silverfold.connectors.hstreamdb.protocol import methods
from silverfold.connectors.hstreamdb.protocol.description import decode_description, encode_description
from silverfold.connectors.hstreamdb.protocol.messages import batches
from silverfold.connectors.hstreamdb.protocol.messages.cluster import NodeState
from silverfold.connectors.hstreamdb.protocol.methods import Method
from tests.support.hstreamdb.vectors import names, protobuf_json, vectors

MODULES = ("batches", "cluster", "offsets", "readers", "streams", "subscriptions")
CLASSES = {
    name: found
    for module in MODULES
    for name, found in vars(import_module(f"silverfold.connectors.hstreamdb.protocol.messages.{module}")).items()
}


@pytest.mark.parametrize("vector", vectors("protobuf"), ids=names("protobuf"))
def test_messages_have_the_bytes_of_the_published_definition(vector: dict[str, Any]) -> None:
    message = json_format.ParseDict(protobuf_json(vector["fields"]), CLASSES[vector["message"]]())
    assert message.SerializeToString(deterministic=True).hex() == vector["hex"]
    assert CLASSES[vector["message"]].FromString(bytes.fromhex(vector["hex"])) == message


def test_methods_have_the_published_paths() -> None:
    ours = {each.name: each.path for each in vars(methods).values() if isinstance(each, Method)}
    assert {name: ours[name] for name in vectors("methods")} == vectors("methods")


def test_the_package_is_not_that_of_the_official_stubs() -> None:
    assert batches.RecordId.DESCRIPTOR.full_name == "silverfold.hstreamdb.RecordId"


@pytest.mark.parametrize("vector", vectors("append_request"), ids=names("append_request"))
def test_requests_of_official_producers_are_read(vector: dict[str, Any]) -> None:
    request = batches.AppendRequest.FromString(bytes.fromhex(vector["hex"]))
    assert (request.stream_name, request.records.batch_size) == (vector["stream"], vector["batch_size"])
    assert request.records.HasField("publish_time") == vector["publish_time_set"]


@pytest.mark.parametrize("vector", vectors("describe_cluster"), ids=names("describe_cluster"))
def test_a_cluster_is_described_in_both_layouts(vector: dict[str, Any]) -> None:
    found = decode_description(bytes.fromhex(vector["hex"]))
    assert found.protocol_version == vector["protocol_version"]
    assert found.server_version == (vector["server_version"] or "")
    assert [{"id": each.id, "address": f"{each.host}:{each.port}"} for each in found.nodes] == vector["nodes"]
    states = [{"id": each.node.id, "state": NodeState(each.state).name.title()} for each in found.statuses]
    assert states == vector["status"]
    assert str(found.up_time_s) == vector["up_time_s"]
    assert encode_description(found, old_layout=vector["layout"] == "old").hex() == vector["hex"]


def test_only_running_nodes_are_used() -> None:
    found = decode_description(bytes.fromhex(vectors("describe_cluster")[0]["hex"]))
    assert [(each.host, each.port) for each in found.running] == [("127.0.0.1", 6570), ("127.0.0.1", 6571)]
    found.statuses[1].state = NodeState.STARTING
    assert [each.port for each in found.running] == [6570]
