"""A table whose columns or keys are others at the source now: what rebuild makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import silverfold.pipelines.upkeep.rebuild
from silverfold.conf.load import load_settings
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.pipelines.holding.quarantine_log import quarantined
from silverfold.pipelines.reading.time_travel import as_of_position
from silverfold.pipelines.storage.cuts import position_reached
from silverfold.pipelines.upkeep.rebuild import Rebuild, Rebuilt
from silverfold.pipelines.verifying.verify import Verdict, verify_history
from tests.support.deaths import Died, dying
from tests.support.sqlitecloud.feed import FEED, SqliteCloudFeed, notified, selected, snapshot_begins, snapshot_ends
from tests.support.sqlitecloud.notices import described

BEFORE = {"id": "INTEGER", "a": "INTEGER", "b": "TEXT"}


@dataclass
class Change:
    """What becomes of the table's columns or keys at the source."""

    columns: Mapping[str, str]
    keys: Sequence[str]
    row: Sequence[Any]
    error: str
    """Class of what holds the table."""


CHANGES = {
    "a column less": Change({"id": "INTEGER", "a": "INTEGER"}, ["id"], [1, 7], "SCHEMA_DRIFT"),
    "another type": Change({"id": "INTEGER", "a": "TEXT", "b": "TEXT"}, ["id"], [1, "7", "y"], "SCHEMA_DRIFT"),
    "another key": Change(BEFORE, ["a"], [1, 7, "y"], "REBUILD_NEEDED"),
}


class Shop(SqliteCloudFeed):
    """A feed of one table."""

    def snapshot(self, columns: Mapping[str, str], keys: Sequence[str], *rows: Sequence[Any]) -> None:
        description = described("t", dict(columns), list(keys))
        self.connect(*snapshot_begins(description), selected(description, rows), snapshot_ends(description))

    def update(self, keys: Sequence[str], **row: Any) -> None:
        self.land(notified({"channel": "t", "type": "TABLE", "pk": list(keys), "payload": [{"type": "UPDATE", **row}]}))

    def rebuild(self, spark: SparkSession) -> Rebuilt:
        settings = load_settings(None, "local", {}).model_copy(update={"warehouse": str(self.warehouse)})
        return Rebuild(spark, settings, CONNECTOR, self.feed, "t", "a").run()

    def verdicts(self) -> set[Verdict]:
        history = verify_history(self.places, CONNECTOR, self.feed, "t")
        return {self.verify("t").verdict, *([history.verdict] if self.feed.tables["t"].keeps_history else [])}


def before(warehouse: Path, **settings: Any) -> Shop:
    shop = Shop(warehouse, {"t": settings})
    shop.snapshot(BEFORE, ["id"], [1, 1, "x"], [2, 2, "x"])
    shop.update(["id"], id=1, a=3)
    return shop


def test_a_state_is_built_from_the_newest_snapshot(spark: SparkSession, warehouse: Path) -> None:
    shop, change = before(warehouse), CHANGES["a column less"]
    assert shop.build(spark) == {}
    shop.snapshot(change.columns, change.keys, change.row)
    (held,) = shop.build(spark).values()

    done = shop.rebuild(spark)

    assert "`silverfold rebuild shop t` makes a new table of the newest snapshot" in str(held)
    assert done.begins is None
    assert (shop.rows("t"), shop.verdicts()) == ([{"id": 1, "a": 7}], {Verdict.EQUAL})
    shop.update(["id"], id=1, a=8)
    assert shop.build(spark) == {}
    assert (shop.rows("t"), shop.verdicts()) == ([{"id": 1, "a": 8}], {Verdict.EQUAL})


@pytest.mark.nightly
@pytest.mark.parametrize("kind", CHANGES)
def test_a_history_begins_anew_with_the_change(spark: SparkSession, warehouse: Path, kind: str) -> None:
    shop, change = before(warehouse, stored_as_scd_type=2), CHANGES[kind]
    assert shop.build(spark) == {}
    position = position_reached(shop.places, FEED, "t")
    shop.snapshot(change.columns, change.keys, change.row)
    (held,) = shop.build(spark).values()
    assert held.error_class == change.error

    done = shop.rebuild(spark)

    assert done.begins is not None
    then = as_of_position(shop.places, CONNECTOR, shop.feed, position)
    assert (then.versions.keys(), then.missing) == ({"t", "t__history"}, {})
    assert {each.resolution for each in quarantined(shop.places, FEED, "t")} == {"passed"}
    after = dict(zip(change.columns, change.row, strict=True))
    assert (shop.rows("t"), shop.verdicts()) == ([after], {Verdict.EQUAL})
    shop.update(change.keys, **{name: after[name] for name in change.keys}, **changed(change))
    assert shop.build(spark) == {}
    assert (shop.rows("t"), shop.verdicts()) == ([after | changed(change)], {Verdict.EQUAL})
    assert shop.rebuild(spark).begins == done.begins
    assert (shop.rows("t"), shop.verdicts()) == ([after | changed(change)], {Verdict.EQUAL})


@pytest.mark.nightly
def test_a_rebuild_that_dies_between_history_and_table_leaves_the_history_that_was(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = before(warehouse, stored_as_scd_type=2)
    assert shop.build(spark) == {}
    shop.snapshot(BEFORE, ["id", "a"], [1, 7, "y"])
    assert shop.build(spark).keys() == {"t"}
    with monkeypatch.context() as patch:
        patch.setattr(
            silverfold.pipelines.upkeep.rebuild,
            "replace_companion",
            dying(silverfold.pipelines.upkeep.rebuild.replace_companion, after=True),
        )
        with pytest.raises(Died):
            shop.rebuild(spark)

    assert verify_history(shop.places, CONNECTOR, shop.feed, "t").verdict is Verdict.EQUAL
    assert shop.build(spark).keys() == {"t"}
    shop.rebuild(spark)
    assert shop.verdicts() == {Verdict.EQUAL}


def changed(change: Change) -> dict[str, Any]:
    """Return a value of a column that is no key."""
    name = next(name for name in change.columns if name not in change.keys)
    return {name: "8" if change.columns[name] == "TEXT" else 8}
