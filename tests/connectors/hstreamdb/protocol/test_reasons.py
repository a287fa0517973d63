"""The reasons of errors, which PROTOCOL.md explains."""

from __future__ import annotations

import re
from pathlib import Path

from silverfold.connectors import hstreamdb

ROOM = Path(hstreamdb.__file__).parent
WRITTEN = re.compile(r'(?:reason=|_refuse\()"([a-z]+_[a-z_0-9]+|oversized)"')


def test_protocol_md_explains_every_reason_for_which_a_frame_a_record_or_a_value_is_refused() -> None:
    readers = [ROOM / "protocol" / f"{name}.py" for name in ("frames", "records", "compression")]
    texts = [file.read_text(encoding="utf-8") for file in [*readers, *(ROOM / "decoder").glob("*.py")]]
    given = {reason for text in texts for reason in WRITTEN.findall(text)}
    rows = re.findall(r"^\| (`.+?`) \|", (ROOM / "PROTOCOL.md").read_text(encoding="utf-8"), re.MULTILINE)
    explained = {reason for row in rows for reason in re.findall(r"`(\w+)`", row)}
    assert len(given) > 25
    assert given - explained == set()
