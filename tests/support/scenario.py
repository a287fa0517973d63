"""Scenarios: a folder with the frames of a situation, in parts, and the expected silver after each part.

``script.txt`` has one call per line: a verb, the table, and the arguments as JSON::

    table quotes {"columns": {"Sym": "String"}, "settings": {"keys": ["Sym"]}}
    columns quotes {"Sym": "String", "Bid": "Double"}    the columns from the next connect onwards
    connect                                              begin an epoch: responses for all tables
    resubscribe quotes                                   another response inside the epoch
    snapshot quotes {"1": {"Sym": "AAPL"}}               a complete snapshot; rows by row key
    begin quotes [snapshot]                              open an update, or a snapshot
    added | modified quotes {"1": {"Sym": "AAPL"}}       columns that a row lacks are not sent
    removed quotes [[3, 5]]                              ranges, both ends inclusive
    raw quotes "0900…"                                   any bytes, as hex
    end quotes
    close                                                the connection is lost
    land                                                 commit to bronze; ends a part

``expected.json`` has the schema of each table, without ``_position``, and the expected state after each part: per
table its rows, ``held`` (the error class that holds it) and ``written`` (Delta's own counts for the last commit). A
table that is not named must not exist. ``at_once`` replaces the last part where a build of all parts at once correctly
ends with a different schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silverfold.connectors.deephaven.options import DeephavenTable
from silverfold.connectors.frames import Kind
from tests.support.deephaven.landed_history import LandedHistory

Call = tuple[str, str, Any]


@dataclass(frozen=True)
class Expected:
    """Expected state of one table."""

    schema: str
    rows: Sequence[Sequence[Any]]
    held: str | None = None
    written: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Scenario:
    """A parsed scenario folder."""

    tables: Mapping[str, DeephavenTable]
    columns: Mapping[str, Mapping[str, str]]
    parts: Sequence[Sequence[Call]]
    after: Sequence[Mapping[str, Expected]]
    at_once: Mapping[str, Expected]

    def histories(self) -> Iterator[LandedHistory]:
        """Yield the same history after each part. Callers land its frames before taking the next."""
        history = LandedHistory(dict(self.columns))
        kinds: dict[str, Kind] = {}
        for part in self.parts:
            for verb, stream, sent in part:
                _VERBS[verb](history, kinds, stream, sent)
            yield history


def read(folder: Path) -> Scenario:
    """Parse a scenario folder."""
    calls = [_call(line) for line in (folder / "script.txt").read_text().splitlines() if line and line[0] != "#"]
    declared = {stream: sent for verb, stream, sent in calls if verb == "table"}
    expected = json.loads((folder / "expected.json").read_text())
    after = [_expected(expected["schema"], part) for part in expected["after"]]
    scenario = Scenario(
        tables={name: DeephavenTable(source=name, **sent.get("settings", {})) for name, sent in declared.items()},
        columns={name: sent["columns"] for name, sent in declared.items()},
        parts=_parts([call for call in calls if call[0] != "table"]),
        after=after,
        at_once=_expected(expected["schema"], expected["at_once"]) if "at_once" in expected else after[-1],
    )
    assert len(scenario.parts) == len(scenario.after), "every part has something expected after it"
    return scenario


def _expected(schema: Mapping[str, str], part: Mapping[str, Any]) -> dict[str, Expected]:
    return {name: Expected(**{"schema": schema[name], **one}) for name, one in part.items()}


def _call(line: str) -> Call:
    verb, _, rest = line.strip().partition(" ")
    stream, _, sent = rest.partition(" ")
    return verb, stream, json.loads(sent) if sent[:1] in {"{", "[", '"'} else sent


def _parts(calls: Sequence[Call]) -> list[list[Call]]:
    parts: list[list[Call]] = [[]]
    for call in calls:
        if call[0] == "land":
            parts.append([])
        else:
            parts[-1].append(call)
    assert not parts[-1], "what comes after the last land would never be seen"
    return parts[:-1]


def _rows(sent: Mapping[str, Any]) -> dict[int, Any]:
    return {int(key): row for key, row in sent.items()}


def _columns(history: LandedHistory, _kinds: dict[str, Kind], stream: str, sent: Any) -> None:
    history.columns = {**history.columns, stream: sent}


def _begin(history: LandedHistory, kinds: dict[str, Kind], stream: str, sent: Any) -> None:
    kinds[stream] = Kind.SNAPSHOT if sent == "snapshot" else Kind.DATA
    history.begin(stream, kinds[stream])


_VERBS: Mapping[str, Callable[[LandedHistory, dict[str, Kind], str, Any], None]] = {
    "columns": _columns,
    "begin": _begin,
    "connect": lambda history, kinds, stream, sent: history.connect(),
    "resubscribe": lambda history, kinds, stream, sent: history.respond(stream),
    "snapshot": lambda history, kinds, stream, sent: history.snapshot(stream, _rows(sent)),
    "added": lambda history, kinds, stream, sent: history.rows(stream, _rows(sent), modified=False, kind=kinds[stream]),
    "modified": lambda history, kinds, stream, sent: history.rows(
        stream, _rows(sent), modified=True, kind=kinds[stream]
    ),
    "removed": lambda history, kinds, stream, sent: history.removed(stream, sent, kinds[stream]),
    "raw": lambda history, kinds, stream, sent: history.inside(stream, bytes.fromhex(sent), kinds[stream]),
    "end": lambda history, kinds, stream, sent: history.end(stream, kinds[stream]),
    "close": lambda history, kinds, stream, sent: history.close(),
}
