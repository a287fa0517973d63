"""Silver held against a running source: equal when it is one of the source's states, else different."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.conf.model import Reconnect
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.reference import DeephavenSourceSubscription
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.pipelines.places import Places
from silverfold.pipelines.verifying.verify import Difference, TableVerification, Verdict
from silverfold.pipelines.verifying.verify_source import verify_against_source
from tests.support.written_silver import write_silver

FEED = "market"
SCHEMA = pa.schema([("_row_key", pa.int64()), ("Sym", pa.string()), ("Bid", pa.float64()), ("_position", pa.int64())])
FIRST = [{"_row_key": 0, "Sym": "AAPL", "Bid": 0.0}, {"_row_key": 1, "Sym": "IBM", "Bid": None}]


@pytest.fixture
def quotes() -> LiveTable:
    table = LiveTable({"Sym": "String", "Bid": "Double"})
    with table.update() as update:
        update.add([{"Sym": "AAPL", "Bid": 0.0}, {"Sym": "IBM", "Bid": None}])
    return table


@pytest.fixture
def server(quotes: LiveTable) -> Iterator[TableServer]:
    with TableServer.start() as server:
        server.export_table("Quotes", quotes)
        yield server


class Compared:
    """A feed of the server, and silver written by hand."""

    def __init__(self, server: TableServer, root: Path, **settings: Any) -> None:
        self.places = Places(str(root))
        table = DeephavenTable(**{"source": "Quotes", **settings})
        address = f"127.0.0.1:{server.port}"
        reconnect = Reconnect(connect_timeout=5.0)
        self.feed = Feed(FEED, "deephaven", address, DeephavenOptions(), {"quotes": table}, reconnect=reconnect)

    def write(self, rows: list[dict[str, Any]]) -> None:
        write_silver(self.places, FEED, "quotes", rows, position=9, schema=SCHEMA)

    def verify(self, *, patience: float = 20.0) -> TableVerification:
        return verify_against_source(self.places, CONNECTOR, self.feed, "quotes", patience=patience)


@pytest.fixture
def market(server: TableServer, tmp_path: Path) -> Compared:
    return Compared(server, tmp_path)


def test_silver_that_is_the_resting_source_is_equal(market: Compared):
    market.write(FIRST)

    found = market.verify()

    assert (found.verdict, found.found_rows, found.position) == (Verdict.EQUAL, 2, 9)


def test_silver_that_is_not_is_different_and_the_cell_is_named(market: Compared):
    market.write([FIRST[0], FIRST[1] | {"Bid": 7.0}])

    found = market.verify(patience=0.5)

    assert found.verdict is Verdict.DIFFERENT
    assert found.differences == (Difference(key={"_row_key": 1}, column="Bid", expected=None, found=7.0),)


def test_silver_that_gets_to_a_state_the_source_has_left_by_then_is_equal(
    market: Compared, quotes: LiveTable, monkeypatch: pytest.MonkeyPatch
):
    market.write([])
    take, taken = DeephavenSourceSubscription.take, []

    def changing(self: DeephavenSourceSubscription, seconds: float) -> Any:
        """After the snapshot the source changes twice; only then silver gets to the state in between."""
        updates = take(self, 20.0)
        taken.extend(updates)
        if len(taken) == 1:
            for bid in (1.0, 2.0):
                with quotes.update() as update:
                    update.modify({1: {"Bid": bid}})
        if len(taken) == 3:
            market.write([FIRST[0], FIRST[1] | {"Bid": 1.0}])
        return updates

    monkeypatch.setattr(DeephavenSourceSubscription, "take", changing)

    found = market.verify()

    assert [update.snapshot for update in taken] == [True, False, False]
    assert found.verdict is Verdict.EQUAL


def test_the_source_is_asked_for_the_tables_own_columns_and_rows(server: TableServer, tmp_path: Path):
    market = Compared(server, tmp_path, columns=("Sym",), filter="Sym in `IBM`")
    write_silver(
        market.places,
        FEED,
        "quotes",
        [{"_row_key": 1, "Sym": "IBM", "_position": 3}],
        position=9,
        schema=SCHEMA.remove(2),
    )

    assert market.verify().verdict is Verdict.EQUAL


def test_a_table_without_snapshots_cannot_be_compared(server: TableServer, tmp_path: Path):
    found = Compared(server, tmp_path, mode="updates_only").verify()

    assert (found.verdict, found.reason) == (
        Verdict.UNKNOWN,
        "a table without snapshots cannot be compared with the source",
    )


def test_a_table_that_is_not_built_is_not_compared(market: Compared):
    assert market.verify().verdict is Verdict.NOT_BUILT


def test_a_table_the_source_does_not_have_is_refused(server: TableServer, tmp_path: Path):
    market = Compared(server, tmp_path, source="Nowhere")
    market.write(FIRST)

    with pytest.raises(SourceRefused):
        market.verify()


def test_a_source_that_is_not_there_is_unavailable(market: Compared, server: TableServer):
    market.write(FIRST)
    server.close()

    with pytest.raises(SourceUnavailable, match=f"cannot be asked for at {market.feed.address}: "):
        market.verify()
