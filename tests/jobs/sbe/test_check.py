"""``silverfold sbe check``: what it prints, for people and for scripts, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from silverfold.connectors.wire.sbe.compare.findings import Profile
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.jobs import cli
from silverfold.jobs.sbe.findings import date_of, show
from tests.support.sbe.evolution import Edits, cases, edited

CASES = {case.name: case for case in cases()}
DAYS: list[Edits] = [[['version="1"', 'version="18367"']], [['version="2"', 'version="18400"']]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where the program runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: Path, name: str, *edits: Edits, profile: Profile = "classic") -> None:
    """Write both schemas of a case; the first edits are made to the old one, the second to the new one."""
    for file, text, more in zip(("old.xml", "new.xml"), CASES[name].texts(profile), edits or ((), ()), strict=True):
        (files / file).write_text(edited(text, more), "utf-8")


def exits(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(["sbe", "check", "old.xml", "new.xml", *arguments])
    return left.value.code


def test_a_break_ends_with_1_and_is_told_with_what_to_do(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T30", DAYS[0], [*DAYS[1], ['sinceVersion="2"', 'sinceVersion="18400"']])

    assert exits() == 1

    assert capsys.readouterr().out == (
        "old.xml → new.xml\n"
        "evo, id 77: version 18367 (2020-04-15) → 18400 (2020-05-18); classic messages\n"
        "\n"
        "Order, template 1\n"
        "  breaking     R51  Order.fees: group added before data (backward fine, forward breaking)\n"
        "                    Old readers take its dimensions for the length of the data that follows.\n"
        "                    now: group with entries of 2 bytes, since 18400 (2020-05-18)\n"
        "  → Give the changed layout a new template id, and keep the old one as it was, deprecated from version 18400 "
        "(2020-05-18).\n"
        "\n"
        "compatible   backward, new readers of old messages\n"
        "breaking     forward, old readers of new messages: 1 breaking\n"
    )


def test_days_are_dates_wherever_versions_are_told(files: Path, capsys: pytest.CaptureFixture[str]):
    ping, since = 'name="Ping" id="2"', 'name="Ping" id="2" deprecated="18367"'
    write(files, "T1", [*DAYS[0], [ping, since]], [*DAYS[1], [ping, since.replace("18367", "18400")]])

    assert exits() == 0

    assert "deprecated 18367 (2020-04-15) → deprecated 18400 (2020-05-18)\n" in capsys.readouterr().out


def test_warnings_end_with_0(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T84")

    assert exits() == 0

    assert capsys.readouterr().out == (
        "old.xml → new.xml\n"
        "evolved, id 77: version 1 → 2; classic messages\n"
        "\n"
        "Schema\n"
        "  warning      R2   schema: package differs\n"
        "                    Nothing on the wire changes; code made from the two lies in different packages.\n"
        "                    evo → evolved\n"
        "\n"
        "compatible   backward, new readers of old messages: 1 warning\n"
        "compatible   forward, old readers of new messages: 1 warning\n"
    )


@pytest.mark.parametrize(("direction", "code"), [("backward", 0), ("forward", 1), ("both", 1)])
def test_only_the_wanted_direction_counts(files: Path, direction: str, code: int, capsys: pytest.CaptureFixture[str]):
    write(files, "T30")

    assert exits("--direction", direction) == code

    shown = capsys.readouterr().out
    assert ("R51" in shown) == (direction != "backward")
    assert ("backward," in shown) == (direction != "forward")


def test_a_message_that_breaks_the_other_direction_alone_gets_no_advice(
    files: Path, capsys: pytest.CaptureFixture[str]
):
    sell = '<validValue name="Sell">S</validValue>'
    ping = '<message name="Ping" id="2" blockLength="16"><field name="ts" id="1" type="uint64"/></message>'
    write(files, "T30", (), [[sell, "+", '<validValue name="SellShort">X</validValue>'], [ping, ""]])

    assert exits("--direction", "backward") == 1

    shown = capsys.readouterr().out
    order, ping = shown.index("Order, template 1"), shown.index("Ping, template 2")
    assert order < shown.index("R82") < ping < shown.index("R12")
    assert "→" not in shown[order:ping]
    assert "  → Keep what was removed, deprecated from version 2.\n" in shown[ping:]


def test_a_message_that_breaks_by_what_was_told_with_another_gets_its_advice_behind_the_others(
    files: Path, capsys: pytest.CaptureFixture[str]
):
    both = ['name="ts" id="1" type="uint64"/>', "+", '<field name="side" id="2" type="Side"/>']
    write(files, "T2", [both], [both, ['<validValue name="Sell">S</validValue>', ""]])

    assert exits() == 1

    assert capsys.readouterr().out.endswith(
        "  → Keep what was removed, deprecated from version 2.\n"
        "\n"
        "Ping, template 2\n"
        "  → Keep what was removed, deprecated from version 2.\n"
        "\n"
        "breaking     backward, new readers of old messages: 1 breaking\n"
        "compatible   forward, old readers of new messages: 1 information\n"
    )


def test_a_profile_can_be_asked_for(files: Path):
    write(files, "T38", profile="counted")

    assert exits("--profile", "classic") == 1
    assert exits("--profile", "counted") == exits() == 0


def test_counts_that_messages_cannot_have_are_not_believed(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T38")

    assert exits("--profile", "counted") == 2

    assert "their messages have no counts" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_additions_that_do_no_harm_are_shown_as_fine(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T2")

    assert exits("--direction", "backward") == 0

    assert "  fine         R20  Order.qty: field added at the end\n" in capsys.readouterr().out


def test_json_is_one_object_with_everything(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T50", *DAYS)

    assert exits("--json") == 0

    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found == {
        "verdict": "compatible",
        "old": {"file": "old.xml", "package": "evo", "id": 77, "version": 18367, "date": "2020-04-15"},
        "new": {"file": "new.xml", "package": "evo", "id": 77, "version": 18400, "date": "2020-05-18"},
        "profile": "classic",
        "directions": ["backward", "forward"],
        "backward": {"verdict": "compatible", "breaking": 0, "warning": 1, "information": 0},
        "forward": {"verdict": "compatible", "breaking": 0, "warning": 1, "information": 0},
        "findings": [
            {
                "rule": "R81",
                "title": "enum value added",
                "kind": "M",
                "backward": "none",
                "forward": "warning",
                "message": "Order",
                "path": "Side.SellShort",
                "used_by": ["Order.side"],
                "old": None,
                "new": "SellShort = 'X'",
                "sentence": "Old readers meet SellShort = 'X' as an unknown value.",
            },
            {
                "rule": "R82",
                "title": "new enum value lacks its version",
                "kind": "R",
                "backward": "warning",
                "forward": "none",
                "message": "Order",
                "path": "Side.SellShort",
                "used_by": ["Order.side"],
                "old": None,
                "new": "since 2",
                "sentence": "New readers cannot tell that messages before the new version do not hold it.",
            },
        ],
        "advice": [],
    }


def test_a_break_in_json_ends_with_1(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T11")

    assert exits("--json", "--direction", "forward") == 1

    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["directions"], found["backward"]["verdict"]) == (
        "breaking",
        ["forward"],
        "breaking",
    )
    assert [advice["message"] for advice in found["advice"]] == ["Order"]


def test_all_that_is_wrong_with_either_file_is_told_with_its_line(files: Path, capsys: pytest.CaptureFixture[str]):
    since = ['id="1" type="uint32"', 'id="1" type="uint32" sinceVersion="3"']
    write(files, "T1", [since], [since, ['id="2" type="Side"', 'id="2" type="Side" deprecated="4"']])

    assert exits() == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "silverfold: old.xml:23: E23: sinceVersion 3 of field seq is above the schema's version 1\n"
        "silverfold: new.xml:23: E23: sinceVersion 3 of field seq is above the schema's version 2\n"
        "silverfold: new.xml:24: E23: deprecated 4 of field side is above the schema's version 2\n"
    )


def test_an_invalid_file_is_told_in_json_too(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T1")
    (files / "new.xml").write_text("<messageSchema", "utf-8")

    assert exits("--json") == 2

    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "invalid"
    assert [(error["file"], error["line"], error["code"]) for error in found["errors"]] == [("new.xml", 1, "E01")]


def test_a_missing_file_ends_with_2(files: Path, capsys: pytest.CaptureFixture[str]):
    write(files, "T1")
    (files / "old.xml").unlink()

    assert exits() == 2
    assert "old.xml" in capsys.readouterr().err


def test_lines_are_folded_to_a_terminal_and_coloured_by_the_worst(files: Path):
    write(files, "T11")
    schemas = [load_schema(files / name) for name in ("old.xml", "new.xml")]
    out = io.StringIO()
    terminal = Console(file=out, width=80, force_terminal=True, color_system="standard", highlight=False)

    show(compare(*schemas), *schemas, ("backward", "forward"), terminal)

    assert "\x1b[1;31m  breaking     \x1b[0mR25  Order.tag: field removed\n" in out.getvalue()
    assert (
        "                    Old readers take other bytes for tag, or miss it; new\n"
        "                    readers no longer get what old messages hold.\n"
    ) in out.getvalue()


@pytest.mark.parametrize(
    ("version", "date"),
    [(10956, None), (10957, "2000-01-01"), (18367, "2020-04-15"), (47481, "2099-12-31"), (47482, None), (2, None)],
)
def test_versions_from_2000_to_2100_are_days(version: int, date: str | None):
    assert date_of(version) == date


def test_what_is_harmless_with_lengths_may_break_messages_that_are_packed(files: Path):
    write(files, "T33")

    assert (exits(), exits("--packed")) == (0, 1)
