"""Which versions show a position or a moment. Two tables take turns; seconds say when a cut was committed::

position  1    2    3    4    5    6    7    8    9
quotes    v0 ────── v1 ───────────      v2             at 10, 20, 40
trades         v0 ─────── v1 ──────────      v2        at 11, 21, 60
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from silverfold.conf.errors import QueryFailed
from silverfold.conf.model import Table
from silverfold.pipelines.landing.bronze_table import note_lost
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.reading.time_travel import AsOf, as_of_moment, as_of_position, what_is_lost
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.cuts import CutRow, record
from tests.support.bronze_rows import BEGAN
from tests.support.cut_rows import cut_row
from tests.support.scripted_feed import Snapshots, feed, land

FEED = feed("quotes", "trades")
QUOTES = [(1, 1, 10), (3, 5, 20), (7, 7, 40)]
TRADES = [(2, 2, 11), (4, 6, 21), (8, 8, 60)]
"""First and last position of each cut, and when it was committed."""
TRADES_BEFORE = (
    "table trades of feed market is read as of position 2: what followed came in one commit, up to position 6"
)


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the feed and all its cuts. To be copied, not changed."""
    folder = tmp_path_factory.mktemp("applied")
    places = Places(str(folder))
    land_all(places)
    for table, cuts in (("quotes", QUOTES), ("trades", TRADES)):
        apply(places, table, cuts)
    return folder


@pytest.fixture
def places(applied: Path, tmp_path: Path) -> Places:
    """The feed with all its cuts."""
    shutil.copytree(applied, tmp_path, dirs_exist_ok=True)
    return Places(str(tmp_path))


def land_all(places: Places) -> None:
    snapshots = ["1 - mark none", "1 quotes snapshot whole", "1 trades snapshot whole"]
    land(places, *snapshots, *["1 quotes data whole", "1 trades data whole"] * 3, "1 - mark none")


def apply(places: Places, table: str, cuts: list[tuple[int, int, int]], *, listed: bool = True) -> None:
    """Commit to a silver table as a build does."""
    for version, (first, last, seconds) in enumerate(cuts):
        shared = {
            "table": table,
            "epoch": 1,
            "first_position": first,
            "last_position": last,
            "replaced": version == 0,
            "updates": 1 + (last - first) // 2,
        }
        commit(places, shared, history=version)
        if listed:
            record(places, "market", row(version, seconds, **shared))


def commit(
    places: Places, cut: Mapping[str, Any], *, place: Place | None = None, app: str = "", history: int | None = None
) -> None:
    write_deltalake(
        (place or places.silver("market", cut["table"])).url,
        pa.table({"n": [cut["last_position"]]}),
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app or f"apply/market/{cut['table']}", cut["last_position"])],
            custom_metadata={"userMetadata": CommitNote(feed="market", history=history, **cut).to_json()},
        ),
    )


def row(version: int, seconds: int, **shared: object) -> CutRow:
    return cut_row(delta_version=version, committed_at=at(seconds), **shared)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def position(places: Places, wanted: int) -> AsOf:
    return as_of_position(places, Snapshots(), FEED, wanted)


@pytest.mark.parametrize(
    ("wanted", "versions"),
    [(2, {"quotes": 0, "trades": 0}), (6, {"quotes": 1, "trades": 1}), (9, {"quotes": 2, "trades": 2})],
)
def test_tables_that_lack_nothing_at_a_position_are_read_without_a_note(
    places: Places, wanted: int, versions: dict[str, int]
):
    assert position(places, wanted) == AsOf("market", wanted, versions)


def test_a_table_whose_cut_goes_across_the_position_is_read_before_it_and_said_to_be(places: Places):
    found = position(places, 5)

    assert (found.versions, found.missing) == ({"quotes": 1, "trades": 0}, {})
    assert found.notes == (TRADES_BEFORE,)


def test_a_table_that_began_later_is_missing_and_says_when_it_began(places: Places):
    found = position(places, 1)

    assert (found.versions, found.missing) == (
        {"quotes": 0},
        {"trades": "table trades of feed market has no cut at or before position 1: its first ends at position 2"},
    )


def test_a_table_that_has_not_got_so_far_is_missing_and_says_how_far_it_got(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES[:2])

    found = position(places, 8)

    assert (found.versions, found.missing) == (
        {"quotes": 2},
        {
            "trades": "table trades of feed market has reached only position 6, not 8: "
            "run `silverfold build market --once`"
        },
    )


def test_a_table_that_was_never_built_is_left_to_the_views(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    apply(places, "quotes", QUOTES)

    assert position(places, 9) == AsOf("market", 9, {"quotes": 2})


def test_a_position_that_has_not_landed_is_an_error(places: Places):
    with pytest.raises(QueryFailed, match=r"^feed market has landed only up to position 9: there is no position 10$"):
        position(places, 10)


def test_a_feed_where_nothing_has_landed_has_no_positions(tmp_path: Path):
    with pytest.raises(QueryFailed, match=r"^feed market has landed nothing yet: there is no position 0$"):
        position(Places(str(tmp_path)), 0)


def test_the_list_of_cuts_may_be_lost(places: Places):
    before = [position(places, wanted) for wanted in range(10)]
    shutil.rmtree(places.cuts("market").url)

    after = [position(places, wanted) for wanted in range(10)]

    assert after == before
    assert not Path(places.cuts("market").url).exists(), "a reader does not write what the next build will"


def test_the_list_of_cuts_may_lack_the_newest(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    apply(places, "quotes", QUOTES[:1])
    apply(places, "trades", TRADES, listed=False)

    assert position(places, 2) == AsOf("market", 2, {"quotes": 0, "trades": 0})


def test_cuts_of_an_earlier_table_at_the_same_place_do_not_count(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    earlier = {"table": "quotes", "epoch": 1, "replaced": False, "updates": 1}
    record(places, "market", row(1, 5, first_position=3, last_position=3, **earlier))
    record(places, "market", row(4, 6, first_position=7, last_position=7, **earlier))
    apply(places, "quotes", [(1, 5, 50), (7, 7, 60)])

    found = [position(places, wanted).versions for wanted in (4, 5, 7)]

    assert found == [{}, {"quotes": 0}, {"quotes": 1}]


def test_a_rebuilt_table_is_read_anew_at_its_position_and_as_it_was_at_moments_before(places: Places):
    quotes = {"table": "quotes", "epoch": 1, "replaced": False, "updates": 4, "first_position": 1, "last_position": 7}
    commit(places, quotes)
    record(places, "market", row(3, 100, **quotes))

    found = [as_of_moment(places, Snapshots(), FEED, at(seconds)).versions for seconds in (99, 100)]

    assert [position(places, wanted).versions["quotes"] for wanted in (6, 7)] == [1, 3]
    assert found == [{"quotes": 2, "trades": 2}, {"quotes": 3, "trades": 2}]


def test_a_version_whose_log_was_cleaned_up_says_so(places: Places):
    quotes = Path(places.silver("market", "quotes").url)
    DeltaTable(quotes).create_checkpoint()
    for version in (0, 1):
        (quotes / f"_delta_log/{version:020}.json").unlink()

    found = position(places, 2)

    assert found.versions == {"trades": 0}
    assert found.missing == {
        "quotes": "table quotes of feed market cannot be read as of position 2 any more: "
        "the log of its version 0 was cleaned up"
    }


def test_a_version_whose_files_lie_in_folders_is_there(tmp_path: Path):
    silver, app = Places(str(tmp_path)).silver("market", "quotes"), "apply/market/quotes"
    for last in (1, 5):
        transaction = CommitProperties(app_transactions=[Transaction(app, last)])
        rows = pa.table({"n": [last], "m": [last]})
        write_deltalake(silver.url, rows, partition_by=["n"], mode="overwrite", commit_properties=transaction)
    shared = {"table": "quotes", "epoch": 1, "first_position": 1, "replaced": False, "updates": 1}

    assert what_is_lost(silver, app, row(0, 1, last_position=1, **shared)) is None
    (gone,) = Path(silver.url).glob("n=1/*.parquet")
    gone.unlink()
    assert what_is_lost(silver, app, row(0, 1, last_position=1, **shared)) == "VACUUM removed 1 files of its version 0"


KEEPING = replace(FEED, tables={**FEED.tables, "quotes": Table(source="Quotes", stored_as_scd_type=2)})


@pytest.fixture
def with_history(places: Places) -> Places:
    """The same, with a history of quotes: a version for each cut."""
    for first, last, _ in QUOTES:
        cut = {"table": "quotes", "epoch": 1, "first_position": first, "last_position": last}
        history = places.history("market", "quotes")
        commit(places, {**cut, "replaced": False, "updates": 1}, place=history, app="history/market/quotes")
    return places


def test_a_history_is_shown_up_to_the_cut_of_its_table_also_when_that_is_lost(with_history: Places):
    found = [as_of_position(with_history, Snapshots(), KEEPING, wanted) for wanted in (2, 9)]
    quotes = Path(with_history.silver("market", "quotes").url)
    DeltaTable(quotes).create_checkpoint()
    (quotes / f"_delta_log/{0:020}.json").unlink()
    lost = as_of_position(with_history, Snapshots(), KEEPING, 2)
    before = as_of_moment(with_history, Snapshots(), KEEPING, at(5))

    assert [each.until for each in found] == [{"quotes__history": 1}, {"quotes__history": 7}]
    assert [each.versions["quotes__history"] for each in found] == [2, 2]
    assert (lost.until, sorted(lost.missing)) == ({"quotes__history": 1}, ["quotes"])
    assert (before.until, sorted(before.missing)) == ({}, ["quotes", "quotes__history", "trades"])


def test_a_history_is_shown_as_it_counts_whatever_died_after_it(with_history: Places):
    cut = {"table": "quotes", "epoch": 1, "first_position": 8, "last_position": 8, "replaced": False, "updates": 1}
    commit(with_history, cut, place=with_history.history("market", "quotes"), app="history/market/quotes")

    assert as_of_position(with_history, Snapshots(), KEEPING, 9).versions["quotes__history"] == 2


def test_a_history_in_the_order_of_the_source_is_read_at_its_version_of_then(with_history: Places):
    found = as_of_position(with_history, Snapshots(source_ordered=True), KEEPING, 6)

    assert (found.versions, found.until) == ({"quotes": 1, "quotes__history": 1, "trades": 1}, {})
    log = Path(with_history.history("market", "quotes").url)
    DeltaTable(log).create_checkpoint()
    for version in (0, 1):
        (log / f"_delta_log/{version:020}.json").unlink()
    (missing,) = as_of_position(with_history, Snapshots(source_ordered=True), KEEPING, 6).missing.items()
    assert missing == (
        "quotes__history",
        "table quotes__history of feed market was not kept with the cut of then, or was removed since",
    )


@pytest.mark.parametrize(
    ("seconds", "common", "versions"),
    [
        (70, 8, {"quotes": 2, "trades": 2}),
        (50, 7, {"quotes": 2, "trades": 1}),  # trades had nothing between 6 and 7
        (30, 6, {"quotes": 1, "trades": 1}),
        (20.5, 2, {"quotes": 0, "trades": 0}),  # trades lacked 4, and no version of quotes shows 3
        (11, 2, {"quotes": 0, "trades": 0}),
    ],
)
def test_a_moment_is_the_newest_position_at_which_no_table_lacked_anything(
    places: Places, seconds: float, common: int, versions: dict[str, int]
):
    found = as_of_moment(places, Snapshots(), FEED, at(seconds))

    assert found == AsOf("market", common, versions)


def test_a_table_that_was_not_built_at_the_moment_does_not_hold_others_back(places: Places):
    found = as_of_moment(places, Snapshots(), FEED, at(10.5))

    assert (found.position, found.versions) == (1, {"quotes": 0})
    assert found.missing == {
        "trades": "table trades of feed market was not built yet at 2024-05-01T00:00:10.500000+00:00: "
        "its first cut was committed at 2024-05-01T00:00:11+00:00"
    }


def test_before_anything_was_built_every_table_is_missing(places: Places):
    found = as_of_moment(places, Snapshots(), FEED, at(5))

    assert (found.versions, sorted(found.missing)) == ({}, ["quotes", "trades"])


def test_what_a_table_lacks_now_is_not_shown_of_others_either(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES[:1])

    found = as_of_moment(places, Snapshots(), FEED, at(1000))

    assert found == AsOf("market", 2, {"quotes": 0, "trades": 0})


def test_the_same_moment_gives_the_same_answer_once_more_is_built(tmp_path: Path):
    places = Places(str(tmp_path))
    land_all(places)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES[:1])
    before = as_of_moment(places, Snapshots(), FEED, at(20.5))
    shutil.rmtree(places.silver("market", "trades").url)
    apply(places, "trades", TRADES)

    assert as_of_moment(places, Snapshots(), FEED, at(20.5)) == before


def test_where_bronze_no_longer_reaches_back_the_cuts_alone_decide(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 trades data whole", "1 - mark none", start=8)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES)

    assert position(places, 5) == AsOf("market", 5, {"quotes": 1, "trades": 0}, notes=(TRADES_BEFORE,))
    assert as_of_moment(places, Snapshots(), FEED, at(30)).position == 6


def test_where_bronze_lost_what_the_next_cut_took_that_cut_tells(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 - mark none", "1 quotes snapshot whole", "1 trades snapshot whole", "1 quotes data whole")
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES)
    note_lost(DeltaTable(places.bronze("market").url), 4, 8)
    land(places, "1 - mark none", start=9)
    assert position(places, 5) == AsOf("market", 5, {"quotes": 1, "trades": 0}, notes=(TRADES_BEFORE,))
    assert position(places, 9) == AsOf("market", 9, {"quotes": 2, "trades": 2})


def test_a_cut_of_a_snapshot_does_not_tell_where_its_table_first_lacked_something(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 trades data whole", "1 - mark none", start=8)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES[:1])
    mended = {"table": "trades", "epoch": 1, "first_position": 6, "last_position": 8, "replaced": True, "updates": 2}
    commit(places, mended)
    record(places, "market", row(1, 60, **mended))

    found = position(places, 5)

    assert (found.versions, len(found.notes)) == ({"quotes": 1, "trades": 0}, 1)
    assert as_of_moment(places, Snapshots(), FEED, at(50)).position == 2


def test_a_table_that_lacks_what_was_dropped_leaves_the_others_to_be_read(tmp_path: Path):
    places = Places(str(tmp_path))
    land(places, "1 quotes data whole", "1 - mark none", start=7, kept_from=7)
    apply(places, "quotes", QUOTES)
    apply(places, "trades", TRADES[:2])
    reading = replace(FEED, tables={**FEED.tables, "trades": Table(source="Trades")})

    assert as_of_moment(places, Snapshots(), reading, at(1000)) == AsOf("market", 6, {"quotes": 1, "trades": 1})


def test_before_a_rebuild_a_history_is_read_as_it_was_with_the_cut_of_then(with_history: Places):
    quotes = {"table": "quotes", "epoch": 1, "replaced": True, "updates": 4, "first_position": 1, "last_position": 7}
    commit(with_history, quotes, place=with_history.history("market", "quotes"), app="history/market/quotes")
    commit(with_history, {**quotes, "notes": {"rebuilt": 1}}, history=3)
    record(with_history, "market", replace(row(3, 100, **quotes), notes={"rebuilt": 1}))

    found = [as_of_moment(with_history, Snapshots(), KEEPING, at(seconds)) for seconds in (25, 100)]

    assert [each.versions["quotes__history"] for each in found] == [1, 3]
    assert [each.until for each in found] == [{"quotes__history": 5}, {"quotes__history": 7}]
