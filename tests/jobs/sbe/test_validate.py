"""``silverfold sbe validate``: its notes on groups. What else it prints is in `test___main__`."""

from __future__ import annotations

from pathlib import Path

import pytest

from silverfold.jobs.cli import main

SCHEMA = """<messageSchema id="1" version="18400"><types>
<composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/>
<type name="templateId" primitiveType="uint16"/><type name="schemaId" primitiveType="uint16"/>
<type name="version" primitiveType="uint16"/></composite>
<composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
<type name="numInGroup" primitiveType="uint16"/></composite>
</types>
<message name="Order" id="1">
<group name="legs" id="1"><field name="a" id="2" type="uint8"/>
<group name="fees" id="3" sinceVersion="18367"><field name="b" id="4" type="uint8"/></group></group>
<group name="notes" id="5" deprecated="18400"><field name="c" id="6" type="uint8"/></group>
<group name="marks" id="7"><field name="d" id="8" type="uint8" sinceVersion="18400"/></group>
</message>
<message name="Late" id="2" sinceVersion="18400">
<group name="g" id="1" sinceVersion="18400"><field name="a" id="2" type="uint8"/></group></message>
</messageSchema>
"""


def test_a_group_that_came_later_or_is_deprecated_has_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schema.xml"
    file.write_text(SCHEMA)
    with pytest.raises(SystemExit) as left:
        main(["sbe", "validate", str(file)])
    notes = [line.removeprefix(f"{file}: note: group ") for line in capsys.readouterr().out.splitlines()[:-1]]
    assert notes == [
        "Order.legs.fees, since version 18367 (2020-04-15): older messages have no dimensions of it",
        "Order.notes, deprecated since version 18400 (2020-05-18): its dimensions are still on the wire",
        "Order.marks, since version 18400 (2020-05-18): older messages have no dimensions of it",
    ]
    assert left.value.code == 0


@pytest.mark.parametrize("command", [["validate", "builtin"], ["check", "builtin", "builtin"]], ids=str)
def test_builtin_names_the_schema_that_simulate_sbe_sends(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["sbe", *command])
    assert (left.value.code, "market" in capsys.readouterr().out) == (0, True)
    Path("builtin").write_text("no schema")
    with pytest.raises(SystemExit) as left:
        main(["sbe", *command])
    assert left.value.code == 2
