"""What the build does with input that cannot be taken: the table holds at its last good update, the others go on.

All tables live through one story in one feed: a snapshot and an update that are good, an update that is bad, one that
is good again, and in the next epoch a snapshot. Each fault has a table of its own; ``sound`` has none. What else can be
wrong with a frame is in ``tests/connectors/deephaven/decoder/test_cut_reader.py``: a bad frame is a bad frame to the
build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import PositionGap, SilverfoldError
from silverfold.connectors.base import Decoder
from silverfold.connectors.frames import Frame, Kind
from silverfold.pipelines.holding.quarantine_log import Hold
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.deephaven.vectors import VECTORS

COLUMNS = {"Sym": "String", "Qty": "Long"}

Bad = Callable[[LandedHistory, str], None]


class Fault(NamedTuple):
    """One thing that is wrong, and how the build must name it."""

    bad: Bad
    """Appends the frames inside the bad update."""
    error_class: str
    reason: str
    columns: Mapping[str, str] = COLUMNS
    settings: Mapping[str, Any] = {}


def vector(name: str) -> Bad:
    return lambda history, stream: history.inside(stream, VECTORS[name].body)


def sent(value: Any, *, column_id: int) -> Bad:
    """Modify row 1."""
    return lambda history, stream: history.column(stream, column_id, [1], [value], modified=True)


def modified(rows: Mapping[int, Mapping[str, Any]]) -> Bad:
    return lambda history, stream: history.rows(stream, rows, modified=True)


FAULTS = {
    "ranges": Fault(vector("bad-range-count"), "UNDECODABLE_FRAME", "range-count"),
    "template": Fault(vector("unknown-template"), "UNDECODABLE_FRAME", "UNKNOWN_TEMPLATE"),
    "surrogate": Fault(sent(0xD800, column_id=2), "UNDECODABLE_FRAME", "INVALID_VALUE", {**COLUMNS, "Side": "Char"}),
    "decimal": Fault(
        sent(Decimal("1.005"), column_id=2),
        "UNDECODABLE_FRAME",
        "decimal-scale",
        {**COLUMNS, "Price": "Decimal"},
        {"decimals": {"Price": 2}},
    ),
    "same_key": Fault(modified({2: {"Sym": "AAPL"}}), "DUPLICATE_KEY", "same key", settings={"keys": ("Sym",)}),
    "null_key": Fault(modified({2: {"Sym": None}}), "NULL_KEY", "NULL key", settings={"keys": ("Sym",)}),
}
HEADINGS = {
    "reserved": ({"Sym": "String", "_row_key": "Long"}, "SCHEMA_DRIFT", "_row_key, which is a name of ours"),
    "of Delta's": ({"Sym": "String", "_Metadata": "Long"}, "SCHEMA_DRIFT", "_metadata, which is a name of Delta's"),
    "nul": ({"Sym": "String", "a\0b": "Long"}, "SCHEMA_DRIFT", "'a\\x00b', and delta-rs reads no name with a NUL"),
    "twice": ({"Sym": "String", "SYM": "String"}, "SCHEMA_DRIFT", "columns 'Sym' and 'SYM' have one name for Delta"),
    "lacking": ({"Sym": "String", "Odd": "Int"}, "UNKNOWN_TEMPLATE", "column Odd is sent as template 999"),
}
"""Columns that no table can have. ``lacking`` is announced as a message that the schema lacks."""

SNAPSHOT = {1: {"Sym": "AAPL", "Qty": 10}, 2: {"Sym": "IBM", "Qty": 20}}
GOOD_UPDATE = {1: {"Qty": 11}}
BAD_UPDATE_TOO = {1: {"Qty": 12}}
AFTER = {2: {"Qty": 22}}
HELD = {1: ("AAPL", 11), 2: ("IBM", 20)}
HEALED = {7: {"Sym": "MSFT", "Qty": 70}}


class Outcome(NamedTuple):
    """What one build left behind."""

    errors: Mapping[str, SilverfoldError]
    rows: Mapping[str, Mapping[int, tuple[Any, ...]]]
    holds: Mapping[str, Sequence[Hold]]


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The outcomes of the build after the bad update, and after the snapshot of the next epoch."""
    columns = {name: fault.columns for name, fault in FAULTS.items()} | {
        name: c for name, (c, _, _) in HEADINGS.items()
    }
    settings = {name: dict(FAULTS[name].settings) if name in FAULTS else {} for name in columns}
    tables = {name: table(**settings[name]) for name in columns} | {"sound": table()}
    built = Built(spark, tmp_path_factory.mktemp("bad"), tables)
    history = LandedHistory({**columns, "sound": COLUMNS})
    bad_first_epoch(history)
    outcomes = {"bad": outcome(built, built.land_and_build(history))}
    history.close()
    history.columns = {name: FAULTS[name].columns if name in FAULTS else COLUMNS for name in history.columns}
    history.connect()
    for name in tables:
        history.snapshot(name, HEALED)
    outcomes["healed"] = outcome(built, built.land_and_build(history))
    return outcomes


def bad_first_epoch(history: LandedHistory) -> None:
    history.connect()
    history.frames = [(epoch, announced_as_unknown(frame)) for epoch, frame in history.frames]
    for name in history.columns:
        history.snapshot(name, SNAPSHOT)
        history.update(name, modified=GOOD_UPDATE)
    for name, fault in FAULTS.items():
        history.begin(name)
        history.rows(name, BAD_UPDATE_TOO, modified=True)
        fault.bad(history, name)
        history.end(name)
    for name in history.columns:
        history.update(name, modified=AFTER)


def announced_as_unknown(frame: Frame) -> Frame:
    if frame.stream != "lacking":
        return frame
    return frame._replace(body=frame.body.replace((106).to_bytes(4, "little"), (999).to_bytes(4, "little")))


def outcome(built: Built, errors: Mapping[str, SilverfoldError]) -> Outcome:
    rows = {name: shown(built, name) for name in built.feed.tables if built.exists(name)}
    return Outcome(errors, rows, {name: built.holds(name) for name in built.feed.tables})


def shown(built: Built, name: str) -> Mapping[int, tuple[Any, ...]]:
    return {key: (row["Sym"], row["Qty"]) for key, row in built.rows(name).items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_table_holds_at_its_last_good_update(story: dict[str, Outcome], name: str):
    bad = story["bad"]

    assert bad.rows[name] == HELD
    assert bad.errors[name].error_class == FAULTS[name].error_class
    assert FAULTS[name].reason in str(bad.errors[name])


@pytest.mark.parametrize("name", FAULTS)
def test_the_quarantine_names_what_holds_a_table(story: dict[str, Outcome], name: str):
    (hold,) = story["bad"].holds[name]

    assert (hold.error_class, hold.resolved_at) == (FAULTS[name].error_class, None)
    assert FAULTS[name].reason in hold.reason
    bad_frame = FAULTS[name].error_class == "UNDECODABLE_FRAME"
    assert hold.position - hold.update_position == (2 if bad_frame else 0), "the frame after begin and one column"


@pytest.mark.parametrize("name", HEADINGS)
def test_columns_that_silver_cannot_have_stop_the_table_before_it_is_made(story: dict[str, Outcome], name: str):
    _, error_class, reason = HEADINGS[name]
    bad = story["bad"]

    assert name not in bad.rows
    assert (bad.errors[name].error_class, bad.holds[name][0].error_class) == (error_class, error_class)
    assert reason in str(bad.errors[name])


def test_other_tables_go_on(story: dict[str, Outcome]):
    bad = story["bad"]

    assert bad.rows["sound"] == {1: ("AAPL", 11), 2: ("IBM", 22)}
    assert "sound" not in bad.errors
    assert bad.holds["sound"] == []


@pytest.mark.parametrize("name", [*FAULTS, *HEADINGS, "sound"])
def test_a_later_snapshot_heals(story: dict[str, Outcome], name: str):
    healed = story["healed"]

    assert healed.rows[name] == {7: ("MSFT", 70)}
    assert (name in healed.errors, healed.holds[name]) == (False, [])


@dataclass(frozen=True)
class Failing:
    """A decoder with a bug in one of its functions."""

    decoder: Decoder
    part: str

    def __getattr__(self, name: str) -> Any:
        return {}[name] if name == self.part else getattr(self.decoder, name)


def test_a_bug_in_a_decoder_holds_its_table_here_as_in_a_worker_and_the_others_go_on(
    spark: SparkSession, warehouse: Path
):
    parts = ("context", "row_type", "statistics", "changes")
    built = Built(spark, warehouse, {name: table(source=name) for name in (*parts, "sound")})
    history = LandedHistory(dict.fromkeys(built.feed.tables, COLUMNS))
    history.connect()
    for name in built.feed.tables:
        history.snapshot(name, SNAPSHOT)
    assert built.land_and_build(history) == {}
    for name in built.feed.tables:
        history.update(name, modified=GOOD_UPDATE)
    built.land(history)
    build = built.start()
    build.tables |= {
        name: replace(build.tables[name], decoder=Failing(build.tables[name].decoder, name)) for name in parts
    }

    errors = built.build(build)

    reasons = {name: f"{name}: DECODER_FAILED: KeyError in the decoder" for name in parts}
    assert {name: str(error) for name, error in errors.items()} == reasons
    assert {name: built.holds(name)[0].reason for name in parts} == reasons
    assert shown(built, "sound") == {1: ("AAPL", 11), 2: ("IBM", 20)}


def test_a_snapshot_with_a_bad_frame_leaves_the_old_state_and_names_the_frame(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"t": table()})
    history = LandedHistory({"t": COLUMNS})
    history.connect()
    history.snapshot("t", SNAPSHOT)
    before = built.land_and_build(history)
    history.close()
    history.connect()
    history.begin("t", Kind.SNAPSHOT)
    history.inside("t", VECTORS["bad-range-count"].body, Kind.SNAPSHOT)
    history.end("t", Kind.SNAPSHOT)

    last = built.land(history)

    errors = built.build()

    (held,) = built.holds("t")
    assert (before, held.position, errors["t"].error_class) == ({}, last - 1, "UNDECODABLE_FRAME")
    assert "range-count" in str(errors["t"])
    assert shown(built, "t") == {1: ("AAPL", 10), 2: ("IBM", 20)}


def test_a_first_snapshot_with_a_bad_frame_makes_no_table(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"t": table()})
    history = LandedHistory({"t": COLUMNS})
    history.connect()
    history.begin("t", Kind.SNAPSHOT)
    history.inside("t", VECTORS["bad-range-count"].body, Kind.SNAPSHOT)
    history.end("t", Kind.SNAPSHOT)

    errors = built.land_and_build(history)

    assert errors["t"].error_class == "UNDECODABLE_FRAME"
    assert not built.exists("t")


def test_two_rows_of_one_key_are_told_apart_by_a_later_update(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"quotes": table(keys=("Sym",))})
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()
    history.snapshot("quotes", SNAPSHOT)
    history.update("quotes", modified={2: {"Sym": "AAPL"}})
    built.land(history)
    feed_build = built.start()
    held = built.build(feed_build)
    history.update("quotes", modified={1: {"Sym": "IBM"}})
    built.land(history)
    feed_build.refresh()

    faults = built.build(feed_build)

    assert held["quotes"].error_class == "DUPLICATE_KEY"
    assert (faults, built.holds("quotes")) == ({}, [])
    assert shown(built, "quotes") == {1: ("IBM", 10), 2: ("AAPL", 20)}


def test_a_gap_of_positions_stops_every_table_and_names_the_range(spark: SparkSession, warehouse: Path):
    built = Built(spark, warehouse, {"quotes": table()})
    history = LandedHistory({"quotes": COLUMNS})
    history.connect()
    history.snapshot("quotes", SNAPSHOT)
    last = built.land(history)
    built.build()
    history.update("quotes", modified=GOOD_UPDATE)
    land_after_a_gap(built, history, missing=3)

    faults = built.build()

    fault = faults["quotes"]
    assert isinstance(fault, PositionGap)
    assert (fault.first, fault.last) == (last + 1, last + 3)
    assert shown(built, "quotes") == {1: ("AAPL", 10), 2: ("IBM", 20)}


def land_after_a_gap(built: Built, history: LandedHistory, *, missing: int) -> None:
    writer = BronzeWriter.open(built.places.bronze(FEED), FEED, token="history")
    batch = Batch(writer.last + 1 + missing)
    for epoch, frame in history.frames:
        batch.add([frame], epoch, 1_700_000_000_000_000)
    writer.append(batch.prepare().table)


def test_the_last_key_there_is_can_be_removed(spark: SparkSession, warehouse: Path) -> None:
    built, history, last = Built(spark, warehouse, {"t": table()}), LandedHistory({"t": {"Qty": "Long"}}), 2**63 - 1
    history.connect()
    history.snapshot("t", {5: {"Qty": 1}, last - 1: {"Qty": 2}, last: {"Qty": 3}})
    built.land(history)
    assert built.build() == {}
    history.update("t", removed=[last - 1, last])
    built.land(history)

    assert built.build() == {}
    assert built.rows("t") == {5: {"Qty": 1}}
