"""Reads change rows with the decoder, and holds them against the reference reader, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from silverfold.conf.errors import WireError
from silverfold.connectors.sbe.decoder.changes import ChangeReader
from silverfold.connectors.sbe.decoder.layout import layout_of
from silverfold.connectors.sbe.options import SbeTable
from silverfold.connectors.sbe.reference import SbeReferenceReader
from silverfold.connectors.verification import ReferenceChange
from silverfold.connectors.wire.sbe.schema.model import Schema
from silverfold.pipelines.verifying.compare import same


def changes(schema: Schema, template: str, settings: SbeTable, bodies: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the change rows of bodies at positions 10, 11, …"""
    reader = ChangeReader(schema, settings, layout_of(schema, schema.messages[template], settings))
    positions, landed = pa.array(range(10, 10 + len(bodies)), pa.int64()), pa.array(list(bodies), pa.binary())
    found = []
    for batch in reader.read(positions, landed):
        batch.validate(full=True)
        assert batch.schema == reader.type
        found += batch.to_pylist()
    return sorted(found, key=lambda change: (change["frame_seq"], change["ordinal"] or 0))


def assert_as_reference(schema: Schema, template: str, settings: SbeTable, bodies: Sequence[bytes]) -> None:
    reference = SbeReferenceReader(schema, schema.messages[template], settings)
    found = changes(schema, template, settings, bodies)
    for position, body in enumerate(bodies, start=10):
        mine = [change for change in found if change["frame_seq"] == position]
        expected = read_by_reference(reference, position, body)
        if isinstance(expected, WireError):
            errors = [change["error"] for change in mine if change["error"] is not None]
            assert {"error_class": expected.error_class, "reason": str(expected)} in errors
            continue
        assert [change["error"] for change in mine] == [None] * len(expected)
        for change, wanted in zip(mine, expected, strict=True):
            assert (change["op"], tuple(change["key"].values())) == (wanted.op, wanted.key)
            if wanted.op == "delete":
                assert change["row"] is None
                continue
            assert tuple(change["row"]) == reference.columns
            assert same({name: wanted.row.get(name) for name in reference.columns}, change["row"])
            if settings.keys:
                sent = [name for name in reference.columns if name in wanted.row]
                assert change["present"] == (None if len(sent) == len(reference.columns) else sent)


def read_by_reference(
    reference: SbeReferenceReader, position: int, body: bytes
) -> Sequence[ReferenceChange] | WireError:
    try:
        return list(reference.changes(1, [(position, body)]))
    except WireError as error:
        return error
