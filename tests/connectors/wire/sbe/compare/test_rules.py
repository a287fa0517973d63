"""The table of rules: each has a case that it is for, and a case that comes near and is not for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.connectors.wire.sbe.compare.findings import Severity
from silverfold.connectors.wire.sbe.compare.rules import RULES
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.evolution import cases, edited

pytestmark = pytest.mark.xdist_group("pairs of SBE schemas")  # loaded once for all that look at them

CASES = {case.name: case for case in cases()}
SCHEMAS = [
    *(Path(__file__).parents[4] / "golden" / "sbe").glob("*.xml"),
    Path(__file__).parents[5] / "connectors" / "deephaven" / "schema.xml",
]
NEAR = {
    "R1": "T84",
    "R2": "N6",
    "R3": "T76",
    "R4": "T39",
    "R5": "T82",
    "R6": "T81",
    "R7": "T80",
    "R8": "T91b",
    "R10": "T67",
    "R11": "T65",
    "R12": "T67",
    "R13": "N16",
    "R14": "T69",
    "R15": "T68",
    "R16": "T65",
    "R20": "T3",
    "R21": "T2",
    "R22": "T9",
    "R23": "T8",
    "R24": "T14",
    "R25": "T23",
    "R26": "T89",
    "R27": "T26",
    "R28": "T27",
    "R29": "T17",
    "R30": "T16",
    "R31": "N1",
    "R32": "T101b",
    "R33": "N2",
    "R34": "N3",
    "R35": "T22b",
    "R36": "T22a",
    "R37": "N5",
    "R38": "N4",
    "R39": "T91a",
    "R40": "T24",
    "R41": "T15",
    "R45": "T11",
    "R46": "T2",
    "R50": "T30",
    "R51": "T33",
    "R52": "T32",
    "R53": "T30",
    "R54": "T33",
    "R55": "T93",
    "R56": "T35",
    "R57": "T40",
    "R58": "T39",
    "R59": "T95a",
    "R60": "T38",
    "R65": "T45",
    "R66": "T42",
    "R67": "T42",
    "R68": "T42",
    "R69": "T96",
    "R70": "T44",
    "R71": "T95a",
    "R72": "N3",
    "R73": "T41a",
    "R74": "T46",
    "R80": "T53",
    "R81": "T55",
    "R82": "T50",
    "R83": "T55",
    "R84": "T55",
    "R85": "T53",
    "R86": "T53",
    "R87": "N1",
    "R88": "T58",
    "R89": "T99",
    "R90": "T99",
    "R91": "T99",
    "R92": "T58",
    "R93": "T100a",
    "R94": "T60",
    "R95": "T19",
    "R96": "T101a",
    "R97": "T5",
    "R100": "T72",
    "R101": "T71",
    "R102": "T2",
    "R103": "T74b",
    "R104": "T74a",
    "R105": "T74a",
}
"""Rule → a case that comes near to it and is another's."""


def test_each_rule_has_a_case_and_a_near_miss():
    numbers = {row.partition("/")[0] for row in RULES}

    assert {rule for case in CASES.values() for rule in case.rules} == numbers
    assert NEAR.keys() == numbers


@pytest.mark.parametrize("rule", NEAR)
def test_a_near_miss_is_not_taken_for_the_rule(rule: str):
    old, new = CASES[NEAR[rule]].schemas("classic")

    assert rule not in {finding.rule for finding in compare(old, new).findings}


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.stem)
def test_a_schema_compared_with_itself_gives_no_findings(file: Path):
    found = compare(load_schema(file), load_schema(file))

    assert found.findings == ()
    assert found.advice("backward", "forward") == {}
    assert found.verdict("backward") is Severity.NONE


@pytest.mark.parametrize("name", CASES)
def test_no_side_of_a_case_differs_from_itself(name: str):
    for schema in CASES[name].schemas("counted"):
        assert compare(schema, schema).findings == ()


def test_files_in_the_wrong_order_turn_an_addition_into_a_removal():
    old, new = CASES["T2"].schemas("classic")

    assert [finding.rule for finding in compare(old, new).findings] == ["R20"]
    assert [finding.rule for finding in compare(new, old).findings] == ["R5", "R25"]


def test_counted_is_found_in_header_and_dimensions_of_both():
    classic, counted = (CASES["T2"].schemas(profile) for profile in ("classic", "counted"))

    assert compare(*counted).profile == "counted"
    assert compare(*classic).profile == "classic"
    assert compare(counted[0], classic[1]).profile == "classic"


def test_dimensions_without_counts_make_a_schema_classic():
    old, new = (load_schema(text.encode()) for text in CASES["T2"].texts("counted"))
    text = edited(
        CASES["T2"].texts("counted")[1],
        [
            [
                "+",
                '<composite name="plain"><type name="blockLength" primitiveType="uint16"/>',
                '<composite name="varText">',
            ]
        ],
    )
    text = edited(
        text, [["+", '<type name="numInGroup" primitiveType="uint8"/></composite>', '<composite name="varText">']]
    )
    uncounted = load_schema(
        text.replace('<group name="legs" id="10">', '<group name="legs" id="10" dimensionType="plain">').encode()
    )

    assert compare(old, new).profile == "counted"
    assert compare(old, uncounted).profile == "classic"
