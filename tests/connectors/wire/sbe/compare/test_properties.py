"""Laws of comparison, for schemas with any edits."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import assume, given, reject

from silverfold.conf.errors import InvalidValue, SchemaError
from silverfold.connectors.wire.sbe.compare.findings import Direction, Profile
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from tests.support.sbe.edits import edit
from tests.support.sbe.evolution import GOLDEN, counted
from tests.support.sbe.proof import Proof, prove
from tests.support.tries import half

BASE = (GOLDEN / "rich.xml").read_text("utf-8")


@half
@given(data=st.data(), profile=st.sampled_from(["classic", "counted"]), count=st.integers(1, 4))
def test_what_is_not_breaking_is_read_as_it_was_written(data: st.DataObject, profile: Profile, count: int):
    text, renamed = edit(BASE, data.draw, count)
    old, new = (loaded(each, profile) for each in (BASE, text))

    found = compare(old, new)

    proofs: dict[Direction, Proof] = {
        "backward": proved(old, new, renamed),
        "forward": proved(new, old, {after: before for before, after in renamed.items()}),
    }
    for direction, proof in proofs.items():
        if not found.breaks(direction):
            assert proof.wrong == [], (direction, text)
    assert compare(new, loaded(text, profile)).findings == ()


@half
@given(data=st.data(), counts=st.tuples(st.integers(0, 6), st.integers(0, 6)), framed=st.booleans())
def test_any_two_schemas_can_be_compared(data: st.DataObject, counts: tuple[int, int], framed: bool):
    one, other = (edit(BASE, data.draw, count)[0] for count in counts)
    old, new = loaded(one, "classic"), loaded(other, "classic")

    found = compare(old, new, framed=framed)

    assert {finding.message for finding in found.findings} <= {None, *old.messages, *new.messages}
    assert found.breaks("backward", "forward") == any(finding.worst == 3 for finding in found.findings)


def loaded(text: str, profile: Profile) -> Schema:
    try:
        return load_schema((counted(text) if profile == "counted" else text).encode())
    except SchemaError:
        reject()


def proved(writer: Schema, reader: Schema, renamed: dict[str, str]) -> Proof:
    try:
        return prove(writer, reader, renamed)
    except InvalidValue:  # limits too narrow for the values of the proof
        assume(False)
        raise
