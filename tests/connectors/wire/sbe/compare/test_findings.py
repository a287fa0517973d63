"""What a finding says: where it belongs, what was and is there, what readers would see."""

from __future__ import annotations

import pytest

from silverfold.connectors.wire.sbe.compare.findings import Comparison, Direction, Finding, Kind, Severity
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.evolution import GOLDEN, Edits, cases, edited

CASES = {case.name: case for case in cases()}
BASE = (GOLDEN / "base.xml").read_text("utf-8")
TAG = '<field name="tag" id="4" type="Tag"/>'
PX = '<field name="px" id="3" type="Px"/>'
RAISED = ['version="1"', 'version="2"']
FEES = '<group name="fees" id="30" sinceVersion="2"><field name="fee" id="31" type="uint16"/></group>'
CEASES = "Give the changed layout a new template id, and keep the old one as it was, deprecated from version 2."

KEEP = "Keep what was removed, deprecated from version 2."


def change(*new: list[str], old: Edits = ()) -> Comparison:
    """Compare the base, edited, with itself as version 2 after further edits."""
    base = edited(BASE, old)
    return compare(load_schema(base.encode()), load_schema(edited(base, [RAISED, *new]).encode()))


def only(found: Comparison, rule: str) -> Finding:
    (finding,) = (each for each in found.findings if each.rule == rule)
    return finding


def test_a_finding_says_who_would_see_what():
    found = change(["+", FEES, '<data name="text"'])

    assert found.findings == (
        Finding(
            rule="R51",
            title="group added before data",
            kind=Kind.MISREAD,
            backward=Severity.NONE,
            forward=Severity.BREAKING,
            path="Order.fees",
            old=None,
            new="group with entries of 2 bytes, since 2",
            sentence="Old readers take its dimensions for the length of the data that follows.",
            message="Order",
        ),
    )
    assert found.advice("backward", "forward") == {"Order": CEASES}


@pytest.mark.parametrize("case", ["T30", "T36", "T45"])
def test_what_counts_make_harmless_is_not_told_as_a_harm(case: str):
    found = compare(*CASES[case].schemas("counted"))

    (finding,) = found.findings
    assert (finding.forward, finding.kind) == (Severity.NONE, Kind.NONE)
    assert finding.sentence == "Old readers pass over it: counts tell them that it is there."


def test_an_encoding_is_told_once_with_all_that_use_it():
    found = change(
        ['<validValue name="Sell">S</validValue>', ""],
        old=[['name="ts" id="1" type="uint64"/>', "+", '<field name="side" id="2" type="Side"/>']],
    )

    assert len(found.findings) == 1
    finding = found.findings[0]
    assert (finding.rule, finding.path, finding.message) == ("R83", "Side.Sell", "Order")
    assert (finding.old, finding.new) == ("Sell = 'S'", None)
    assert finding.used_by == ("Order.side", "Ping.side")
    assert found.advice("backward", "forward") == {"Order": KEEP, "Ping": KEEP}


PING = '<message name="Ping" id="2" blockLength="16"><field name="ts" id="1" type="uint64"/></message>'


@pytest.mark.parametrize(
    ("edit", "advice"),
    [
        ([PING, ""], KEEP),
        (
            [PING, PING.replace('id="2"', 'id="9"')],
            "Keep the old template id beside the new one, deprecated from version 2.",
        ),
        ([PING, PING.replace("uint64", "uint32")], CEASES),
    ],
)
def test_what_to_do_depends_on_what_was_broken(edit: list[str], advice: str):
    assert change(edit).advice("backward", "forward") == {"Ping": advice}


@pytest.mark.parametrize(
    ("directions", "advice"),
    [
        (["backward"], {"Ping": KEEP}),
        (["forward"], {"Order": CEASES}),
        (["backward", "forward"], {"Order": CEASES, "Ping": KEEP}),
    ],
)
def test_what_to_do_depends_on_the_direction_that_was_broken(directions: list[Direction], advice: dict[str, str]):
    assert change(["+", FEES, '<data name="text"'], [PING, ""]).advice(*directions) == advice


@pytest.mark.parametrize(
    ("edit", "path", "sentence"),
    [
        (["+", '<field name="qty" id="5" type="uint32" sinceVersion="2"/>', PX], "px", "qty was put before it"),
        (['<field name="side" id="2" type="Side"/>', ""], "px", "side before it was removed"),
        (
            ['<field name="seq" id="1" type="uint32"', '<field name="seq" id="1" type="uint64"'],
            "side",
            "seq before it takes 8 bytes instead of 4",
        ),
        ([PX, PX.replace("/>", ' offset="8"/>')], "px", "it is given another offset, or stands in another order"),
    ],
)
def test_a_field_that_moved_is_told_once_with_what_moved_it(edit: list[str], path: str, sentence: str):
    finding = only(change(edit), "R24")

    assert finding.path == f"Order.{path}"
    expected = f"Both sides read {path} at the wrong place, and all that moved with it: {sentence}."
    assert finding.sentence == expected


def test_a_field_in_another_block_names_both_places():
    finding = only(compare(*CASES["T23"].schemas("classic")), "R37")

    assert (finding.path, finding.message) == ("Order.ratio", "Order")
    assert finding.old == "Order.legs.ratio: uint8 at 2"
    assert finding.new == "Order.ratio: uint8 at 21, since 2"


def test_a_reused_template_id_names_the_first_break_instead_of_all():
    found = compare(*CASES["T68"].schemas("classic"))

    assert [finding.rule for finding in found.findings] == ["R14"]
    assert found.findings[0].sentence == (
        "Each side reads the other's message by its own layout; the first that breaks is R21 at Pong.code "
        "(new field lacks its version)."
    )


def test_nested_parts_are_named_from_their_message_down():
    group = '<group name="sub" id="15"><field name="s" id="16" type="uint8"/></group>'
    found = change(['"s" id="16" type="uint8"', '"s" id="16" type="int8"'], old=[["+", group, '<data name="legText"']])

    finding = only(found, "R27")
    assert (finding.path, finding.old, finding.new) == ("Order.legs.sub.s", "uint8", "int8")


def test_findings_stand_in_the_order_of_messages_places_and_rules():
    found = change(
        ['blockLength="16"', 'blockLength="24"'],
        ['<data name="text" id="20"', '<data name="note" id="20"'],
        ['<field name="ratio" id="12"', '<field name="share" id="12"'],
        [TAG, '<field name="tag" id="5" type="Tag" description="A tag" deprecated="2"/>'],
        ["+", '<type name="spare" primitiveType="uint8"/>', '<type name="Tag"'],
        ['package="evo"', 'package="evolved"'],
        ['<field name="side" id="2"', '<field name="side" id="7"'],
    )

    assert [(finding.rule, finding.path) for finding in found.findings] == [
        ("R2", "schema"),
        ("R39", "Order.side"),
        ("R39", "Order.tag"),
        ("R40", "Order.tag"),
        ("R103", "Order.tag"),
        ("R39", "Order.legs.share"),
        ("R74", "Order.note"),
        ("R46", "Ping"),
        ("R97", "spare"),
    ]
    assert found.advice("backward", "forward") == {}
    assert not found.breaks("backward", "forward")


def test_a_type_tells_what_is_said_of_it():
    found = change(
        ['<set name="Flags"', '<set name="Flags" description="How it is shown" deprecated="2"'],
        ['<choice name="firm"', '<choice name="firm" description="Binding"'],
        old=[[TAG, "+", '<field name="flags" id="6" type="Flags"/>']],
    )

    assert [(finding.rule, finding.path, finding.new) for finding in found.findings] == [
        ("R40", "Flags", "How it is shown"),
        ("R40", "Flags.firm", "Binding"),
        ("R103", "Flags", "deprecated 2"),
    ]


def test_an_inline_enum_is_named_by_its_member():
    level = '<enum name="level" encodingType="uint8"><validValue name="Low">1</validValue></enum>'
    found = change(
        [">1</validValue>", ">2</validValue>"], old=[['<type name="exponent"', level + '<type name="exponent"']]
    )

    finding = only(found, "R84")
    assert (finding.path, finding.old, finding.new) == ("Px.level.Low", "1", "2")
    assert finding.used_by == ("Order.px",)


def test_new_parts_are_looked_through_for_versions_that_contradict_each_other():
    old = '<field name="a" id="1" type="uint8" sinceVersion="2" deprecated="1"/><field name="b" id="2" type="uint8"/>'
    found = change(['name="ts" id="1" type="uint64"/>', "+", f'<group name="g" id="9" sinceVersion="2">{old}</group>'])

    assert [(finding.rule, finding.path) for finding in found.findings] == [
        ("R50", "Ping.g"),
        ("R102", "Ping.g.a"),
        ("R105", "Ping.g.a"),
    ]
