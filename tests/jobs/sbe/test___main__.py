"""``silverfold sbe decode`` and ``validate``, as people and scripts call them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from silverfold.connectors.base import Feed
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.options import SbeOptions, SbeTable
from silverfold.jobs.cli import main
from silverfold.jobs.sbe import input as sbe_input

GOLDEN = Path(__file__).parents[2] / "golden"
SBE = GOLDEN / "sbe"
SAMPLE, STANDARD = SBE / "sample.xml", SBE / "standard.xml"
QUOTE = next(case["hex"] for case in json.loads((SBE / "messages.json").read_text("utf-8")))
QUOTE_LINE = (SBE / "sample.jsonl").read_text("utf-8")
FRAMES = {case["name"]: case["hex"] for case in json.loads((GOLDEN / "framing" / "frames.json").read_text("utf-8"))}
PARTS = """<messageSchema id="1" version="0"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
{types}
</types>
<message name="M" id="1">{fields}</message>
</messageSchema>
"""
ONE = '<field name="a" id="1" type="uint8"/>'
MODES = ["strict", "bytes", "replace"]


class Shown:
    """What a command printed, and how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        with pytest.raises(SystemExit) as left:
            main(["sbe", *map(str, arguments)])
        self.code = left.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def schema(tmp_path: Path):
    def write(fields: str, types: str = "") -> Path:
        file = tmp_path / "schema.xml"
        file.write_text(PARTS.format(fields=fields, types=types))
        return file

    return write


@pytest.fixture
def lines(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        file = tmp_path / "messages.hex"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def test_a_message_in_hex_is_one_line_of_json(capsys, lines):
    shown = Shown(capsys, "decode", "--schema", SAMPLE, "--hex", lines(QUOTE + "\n"))

    assert (shown.out, shown.err, shown.code) == (QUOTE_LINE, "", 0)


def test_framed_messages_are_one_line_of_json_each(capsys, lines):
    file = lines(bytes.fromhex(FRAMES["frames of the standard"]))

    shown = Shown(capsys, "decode", "--schema", STANDARD, "--framing", "sofh", file)

    assert (shown.out, shown.err, shown.code) == ((SBE / "standard.jsonl").read_text("utf-8"), "", 0)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_file_is_read_in_chunks_of_any_size(capsys, lines, monkeypatch, size):
    monkeypatch.setattr(sbe_input, "CHUNK", size)
    file = lines(bytes.fromhex(FRAMES["frames of the standard"]))

    shown = Shown(capsys, "decode", "--schema", STANDARD, "--framing", "sofh", file)

    assert shown.out == (SBE / "standard.jsonl").read_text("utf-8")


def test_standard_input_is_read_too(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUOTE.encode())))

    shown = Shown(capsys, "decode", "--schema", SAMPLE, "--hex", "-")

    assert (shown.out, shown.code) == (QUOTE_LINE, 0)


@pytest.mark.parametrize(
    "text",
    [
        f"{QUOTE}\r\n\r\n{QUOTE}\r\n",
        f"# two quotes\n{QUOTE[:8]} {QUOTE[8:]}\t # the first\n\n   \n{QUOTE.upper()}",
        b"\xef\xbb\xbf" + f"{QUOTE}\n{QUOTE}".encode(),
    ],
    ids=["CRLF", "spaces and comments", "byte order mark"],
)
def test_hex_may_be_written_as_people_write_it(capsys, lines, text):
    shown = Shown(capsys, "decode", "--schema", SAMPLE, "--hex", lines(text))

    assert (shown.out, shown.err, shown.code) == (QUOTE_LINE * 2, "", 0)


@pytest.mark.parametrize("options", [["--hex"], ["--framing", "sofh"], ["--framing", "whole"], ["--framing", "packed"]])
def test_an_empty_file_holds_no_messages(capsys, lines, options):
    shown = Shown(capsys, "decode", "--schema", SAMPLE, *options, lines(""))

    assert (shown.out, shown.err, shown.code) == ("", "", 0)


def test_what_cannot_be_decoded_is_told_in_its_place_and_the_next_message_follows(capsys, lines, schema):
    text = "0100010001000000 01\n0100010001000000\n0100090001000000 01\n0100010001\nxy\n010\n0100010001000000 02"

    shown = Shown(capsys, "decode", "--schema", schema(ONE), "--hex", lines(text))

    assert [line.get("fields", line.get("error")) for line in shown.objects] == [
        {"a": 1},
        "TRUNCATED_MESSAGE",
        "UNKNOWN_TEMPLATE",
        "TRUNCATED_MESSAGE",
        "INVALID_VALUE",
        "INVALID_VALUE",
        {"a": 2},
    ]
    assert shown.objects[1] == {
        "error": "TRUNCATED_MESSAGE",
        "message": "truncated in M at byte 8: block needs 1 bytes, 0 are left",
        "offset": 8,
        "line": 2,
    }
    assert [(line["line"], line["offset"]) for line in shown.objects[2:6]] == [(3, 0), (4, 5), (5, 0), (6, 1)]
    assert (shown.err, shown.code) == ("", 1)


def test_after_a_lie_of_the_framing_nothing_more_can_be_cut(capsys, lines, schema):
    file = lines(bytes.fromhex("09000000 0100010001000000 01 09000000 0100090001000000 01 ffffffff 0100"))
    shown = Shown(capsys, "decode", "--schema", schema(ONE), "--framing", "deephaven", file)
    assert shown.code == 1
    found = [(line.get("fields", line.get("error")), line.get("offset"), line.get("at")) for line in shown.objects]
    assert found == [({"a": 1}, None, None), ("UNKNOWN_TEMPLATE", 0, 17), ("OVERSIZED_MESSAGE", 26, 0)]


def test_packets_stand_on_lines_and_a_bad_one_costs_no_other(capsys, lines, schema):
    packet = "07000000 0800000000000000 0b00 0100010001000000 01"

    shown = Shown(
        capsys,
        "decode",
        "--schema",
        schema(ONE),
        *("--framing", "cme-mdp3"),
        "--hex",
        lines(f"{packet} {packet[26:]}\n{packet[:-2]}\n07000000 0800000000000000\n{packet}\n"),
    )

    assert [line.get("fields", line.get("error")) for line in shown.objects] == [
        {"a": 1},
        {"a": 1},
        "TRUNCATED_MESSAGE",
        {"a": 1},
    ]


def test_packed_messages_need_nothing_between_them(capsys, lines):
    shown = Shown(capsys, "decode", "--schema", SAMPLE, "--framing", "packed", lines(bytes.fromhex(QUOTE * 3)))

    assert (shown.out, shown.code) == (QUOTE_LINE * 3, 0)


def test_numbers_are_exact_and_those_that_json_lacks_are_text(capsys, lines, schema):
    fields = '<field name="u" id="1" type="uint64"/><field name="i" id="2" type="int64"/>' + "".join(
        f'<field name="{name}" id="{number}" type="double"/>' for number, name in enumerate("xyz", 3)
    )
    body = "feffffffffffffff 0100000000000080 000000000000f87f 000000000000f07f 000000000000f0ff"

    shown = Shown(capsys, "decode", "--schema", schema(fields), "--hex", lines("2800010001000000" + body))

    assert shown.out.endswith(
        '{"u": 18446744073709551614, "i": -9223372036854775807, "x": "NaN", "y": "Infinity", "z": "-Infinity"}}\n'
    )


def test_text_that_is_none_is_an_error_or_hex_or_repaired(capsys, lines, schema):
    types = '<type name="t" primitiveType="char" length="2"/>'
    file, messages = schema('<field name="t" id="1" type="t"/>', types), lines("0200010001000000 41e9")

    results = [Shown(capsys, "decode", "--schema", file, "--text", mode, "--hex", messages) for mode in MODES]

    assert results[0].objects[0]["error"] == "INVALID_VALUE"
    assert [shown.objects[0]["fields"]["t"] for shown in results[1:]] == ["41e9", "A\ufffd"]
    assert [shown.code for shown in results] == [1, 0, 0]


def test_what_is_odd_is_told_once_for_each_kind_and_element(capsys, lines, schema):
    message = "0100010001000000 ff aa\n"

    shown = Shown(capsys, "decode", "--schema", schema(ONE), "--hex", lines(message * 3))

    assert shown.err == "silverfold: message 1: trailing-bytes in M: 1 bytes are left behind the message\n"
    assert (len(shown.objects), shown.code) == (3, 0)


def test_values_are_reviewed_on_request(capsys, lines, schema):
    file = lines("0100010001000000 01\n0100010001000000 ff\n")

    shown = Shown(capsys, "decode", "--review", "--schema", schema(ONE), "--hex", file)

    assert shown.err == "silverfold: message 2: null-in-required in M.a: the null value 255\n"
    assert (shown.objects[1]["fields"], shown.code) == ({"a": 255}, 0)


def test_versions_that_count_days_are_told_with_their_dates(capsys, lines, schema):
    file = schema('<field name="a" id="1" type="uint8" deprecated="18367"/>')
    file.write_text(file.read_text().replace('version="0"', 'version="18400"'))
    message = lines("010001000100e047 01")

    validated = Shown(capsys, "validate", file)
    shown = Shown(capsys, "decode", "--review", "--schema", file, "--hex", message)

    assert validated.out == f"{file}: valid: schema 1, version 18400 (2020-05-18), little-endian, 1 message\n"
    assert shown.err == "silverfold: message 1: deprecated in M.a: deprecated since version 18367 (2020-04-15)\n"
    assert (shown.objects[0]["version"], shown.code) == (18400, 0)


def test_a_file_and_a_package_with_line_ends_are_told_on_one_line(capsys, schema, tmp_path):
    file = schema(ONE, '<type name="a b" primitiveType="int8"/>').rename(tmp_path / "a\nb.xml")
    file.write_text(file.read_text().replace('id="1"', 'id="1" package="p&#10;q"', 1))
    first, last = Shown(capsys, "validate", file).out.splitlines()
    named = f"{tmp_path}/a\\nb.xml"
    assert first == f"{named}:5: W02: name 'a b' is not of the symbolic form"
    assert last == f"{named}: valid, 1 warning: schema 1 p\\nq, version 0, little-endian, 1 message"


def test_bytes_behind_a_message_are_counted_or_an_error_if_one_is_strict(capsys, lines, schema):
    two = lines("0100010001000000 01 02\n0100010001000100 01 0203")
    refused, newer = Shown(capsys, "decode", "--strict", "--schema", schema(ONE), "--hex", two).objects
    assert (refused["error"], refused["offset"], newer["left"]) == ("INVALID_VALUE", 9, 2)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_line_without_end_is_passed_over_not_kept(capsys, lines, schema, monkeypatch, chunk):
    monkeypatch.setattr(sbe_input, "LONGEST_LINE", 40)
    monkeypatch.setattr(sbe_input, "CHUNK", chunk)
    text = "0100010001000000 01\n" + "00" * 500 + "\n0100010001000000 02\n" + "00" * 500

    shown = Shown(capsys, "decode", "--schema", schema(ONE), "--hex", lines(text))

    assert [line.get("fields", line.get("error")) for line in shown.objects] == [
        {"a": 1},
        "OVERSIZED_MESSAGE",
        {"a": 2},
        "OVERSIZED_MESSAGE",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hex", "{folder}/none.hex"], "none.hex cannot be read: No such file"),
        (["--hex", "{folder}"], "cannot be read: Is a directory"),
        (["{folder}/messages.hex"], "--hex, --framing NAME: one of them"),
        (
            ["--framing", "soph", "{folder}/messages.hex"],
            "no framing 'soph'. Did you mean 'sofh'? Known: deephaven, sofh",
        ),
        (["--accept", "E01", "--hex", "{folder}/messages.hex"], "'E01' is not one of E14, E24"),
        (["--hex"], "Missing argument"),
    ],
)
def test_wrong_use_is_answered_with_what_is_right(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("COLUMNS", "300")

    shown = Shown(
        capsys, "decode", "--schema", SAMPLE, *(text.replace("{folder}", str(tmp_path)) for text in arguments)
    )

    assert message in shown.err
    assert (shown.out, shown.code) == ("", 2)


def test_nothing_is_decoded_by_a_schema_that_is_not_valid(capsys, lines, schema):
    file = schema('<field name="a" id="1" type="uint9"/>')

    shown = Shown(capsys, "decode", "--schema", file, "--hex", lines(QUOTE))

    assert shown.err == f"silverfold: {file}:7: E07: field a: there is no encoding called uint9\n"
    assert (shown.out, shown.code) == ("", 2)


def test_a_message_is_printed_once_it_has_come_and_a_closed_pipe_is_no_error():
    program = [sys.executable, "-m", "silverfold.jobs.sbe.__main__", "decode", "--schema", SAMPLE, "--hex", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, **pipes) as running:
        watch = threading.Timer(60, running.kill)  # a line that never comes must not hang the tests
        watch.start()
        running.stdin.write(f"{QUOTE}\n".encode())
        running.stdin.flush()
        first = running.stdout.readline()
        running.stdout.close()
        running.stdin.write(f"{QUOTE}\n".encode() * 100)
        running.stdin.close()
        errors = running.stderr.read()
        watch.cancel()

    assert first.decode() == QUOTE_LINE
    assert errors == b""


def test_a_valid_schema_is_described_and_its_oddities_told(capsys):
    shown = Shown(capsys, "validate", SAMPLE)

    assert shown.out == (
        f"{SAMPLE}:30: W16: the null value 99 of OptU8 is inside its range\n"
        f"{SAMPLE}: valid, 1 warning: schema 7 sample, version 3, little-endian, 1 message\n"
    )
    assert (shown.err, shown.code) == ("", 0)


def test_every_mistake_of_a_schema_is_told_with_its_line(capsys, schema):
    types = '<type name="a b" primitiveType="int8"/>\n<type name="t" primitiveType="int7"/>\n<set name="s" length="x"/>'
    file = schema(ONE, types)

    shown = Shown(capsys, "validate", file)

    assert shown.out == (
        f"{file}:5: W02: name 'a b' is not of the symbolic form\n"
        f"{file}:6: E06: t: there is no primitive type 'int7'\n"
        f"{file}:7: E26: set s lacks encodingType\n"
        f"{file}:7: W13: attribute length is not known on set and is ignored\n"
        f"{file}: 2 errors, 2 warnings\n"
    )
    assert (shown.err, shown.code) == ("", 2)


def test_lines_are_those_of_the_file_that_holds_them(capsys, schema, tmp_path):
    (tmp_path / "more.xml").write_text('<types>\n<type name="t" primitiveType="int7"/></types>')
    include = '<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="more.xml"/>'

    shown = Shown(capsys, "validate", schema(ONE, include))

    assert shown.out.startswith(f"{tmp_path}/more.xml:2: E06: ")
    assert shown.code == 2


@pytest.mark.parametrize(
    ("contents", "reason"),
    [(None, "cannot be read: No such file or directory"), ("", "no element found"), ("<a/>", "the root is a, not")],
)
def test_what_is_no_schema_is_not_valid(capsys, tmp_path, contents, reason):
    file = tmp_path / "any.xml"
    if contents is not None:
        file.write_text(contents)

    shown = Shown(capsys, "validate", file)

    assert "E01" in shown.out
    assert reason in shown.out
    assert shown.out.endswith(f"\n{file}: 1 error\n")
    assert shown.code == 2


def test_what_the_standard_forbids_but_tools_take_is_an_error_on_request(capsys, schema):
    file = schema(ONE, '<type name="t" primitiveType="int8"/><type name="t" primitiveType="int8"/>')

    assert Shown(capsys, "validate", file).code == 0
    shown = Shown(capsys, "validate", "--strict", file)
    assert (shown.code, "W01" in shown.out) == (2, True)


def test_what_published_schemas_break_is_accepted_on_request(capsys, schema, lines):
    types = '<enum name="e" encodingType="uint8"><validValue name="None">255</validValue></enum>'
    file = schema('<field name="e" id="1" type="e"/>', types)

    assert Shown(capsys, "validate", file).code == 2
    assert Shown(capsys, "validate", "--accept", "E14", file).code == 0
    shown = Shown(capsys, "decode", "--accept", "E14", "--schema", file, "--hex", lines("0100010001000000 ff"))
    assert shown.objects[0]["fields"] == {"e": None}
    assert Shown(capsys, "check", file, file).code == 2
    assert Shown(capsys, "check", "--accept", "E14", file, file).code == 0
    for accept, problems in (("[]", ["options.schema"]), ('["E14"]', [])):
        options = SbeOptions.model_validate_json(f'{{"schema": "{file}", "framing": "sofh", "accept": {accept}}}')
        feed = Feed("feed", "sbe", "127.0.0.1:1", options, {"M": SbeTable()})
        assert [each.key for each in CONNECTOR.problems(feed)] == problems
