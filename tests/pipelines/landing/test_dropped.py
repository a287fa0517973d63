"""What dropped frames are to a table without snapshots, by what bronze's log records of each drop."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.pipelines.landing.bronze_table import SCHEMA, create, retention_id
from silverfold.pipelines.landing.dropped import Dropped, base_position, dropped_of
from silverfold.pipelines.places import Places
from tests.support.written_silver import write_silver

FEED = "shop"


def drop(places: Places, floor: int, **tables: Dropped) -> None:
    """Record a drop as retention does."""
    records = [each for name, dropped in tables.items() for each in dropped.transactions(FEED, name)]
    write_deltalake(
        create(places.bronze(FEED)),
        SCHEMA.empty_table(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(retention_id(FEED), floor), *records]),
    )


@pytest.mark.parametrize(
    ("dropped", "enough"),
    [
        (Dropped(), -1),
        (Dropped(10), 9),
        (Dropped(10, 4), 4),
        (Dropped(10, -1), -1),
    ],
)
def test_a_table_lacks_nothing_from_its_last_dropped_update_on(dropped: Dropped, enough: int):
    assert [dropped.is_enough(position) for position in (enough - 1, enough)] == [False, True]


def test_a_drop_records_what_it_is_to_each_table(tmp_path: Path):
    places = Places(str(tmp_path))
    before = dropped_of(places.bronze(FEED), FEED, "albums")
    drop(places, 10, albums=Dropped(10, 4), artists=Dropped(10, -1, 7))

    assert before == Dropped()
    assert dropped_of(places.bronze(FEED), FEED, "albums") == Dropped(10, 4)
    assert dropped_of(places.bronze(FEED), FEED, "artists") == Dropped(10, -1, 7)


def test_a_later_drop_without_the_table_makes_its_base_useless(tmp_path: Path):
    places = Places(str(tmp_path))
    schema = pa.schema([("id", pa.int64())])
    write_silver(places.base("albums"), FEED, "albums", [{"id": 1}], position=4, schema=schema)
    found = [base_position(places, FEED, "albums")]
    drop(places, 10, albums=Dropped(10, 4, 2))
    found.append(base_position(places, FEED, "albums"))
    drop(places, 20)
    found.append(base_position(places, FEED, "albums"))

    assert found == [4, 4, None]
    assert dropped_of(places.bronze(FEED), FEED, "albums") == Dropped(20, None, 2)
