"""Golden vectors of HStreamDB, and the protobuf JSON form of the messages in them."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "golden" / "hstreamdb" / "vectors.json"


@cache
def _whole() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def vectors(section: str) -> Any:
    return _whole()[section]


def names(section: str) -> list[str]:
    return [each["name"] for each in vectors(section)]


def protobuf_json(fields: Any) -> Any:
    """Bytes in base64, times and the names of enums as protobuf's JSON has them."""
    if isinstance(fields, list):
        return [protobuf_json(each) for each in fields]
    if not isinstance(fields, dict):
        return 1 if fields == "ResSubscription" else fields
    found = {name: protobuf_json(value) for name, value in fields.items()}
    for name in {"publishTime", "creationTime"} & found.keys():
        nanos = int(found[name].get("nanos", 0))
        found[name] = f"2023-11-14T22:13:20.{nanos:09d}Z"  # all vectors are of the second 1,700,000,000
    if "payload" in found:
        found["payload"] = base64.b64encode(bytes.fromhex(fields["payload"])).decode()
    return found
