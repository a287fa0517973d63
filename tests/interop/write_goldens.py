"""Writes anew what the official SBE tool prints for the golden messages: ``python -m tests.interop.write_goldens``.

Schemas and messages stay as they are in ``tests/golden/sbe/oracle/cases.json``; see the differences before they go in.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.interop.official import OfficialTool, class_path
from tests.support.sbe.official import ARTIFACT

GOLDEN = Path(__file__).parents[1] / "golden" / "sbe"


def main() -> None:
    """Ask the tool about every case."""
    file = GOLDEN / "oracle" / "cases.json"
    cases = json.loads(file.read_text("utf-8"))["cases"]
    with tempfile.TemporaryDirectory() as folder, OfficialTool(class_path(Path(folder))) as tool:
        for case in cases:
            tool.load((GOLDEN / case["schema"]).read_bytes())
            case["values"], case["consumed"] = tool.decode(bytes.fromhex(case["hex"]))
    text = json.dumps({"tool": ARTIFACT, "cases": cases}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
