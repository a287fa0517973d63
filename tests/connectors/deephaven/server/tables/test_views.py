"""Views of live tables: at every update what a plain reading of the table says."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, LocalProtocolError
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.deephaven.server.tables.views import last_by, where
from tests.support.deephaven.peer import Peer

COLUMNS = {"Sym": "String", "Size": "Int", "Price": "Double", "Tags": "StringArray"}
Rows = dict[int, dict[str, Any]]


def row(rng: Random) -> dict[str, Any]:
    sym = rng.choice([None, "AAPL", "IBM", "MSFT"])
    tags = None if sym is None else [sym, None]
    price = rng.choice([None, float("nan"), 0.0, 1.5])
    return {"Sym": sym, "Size": rng.choice([None, *range(5)]), "Price": price, "Tags": tags}


def change(table: LiveTable, rng: Random) -> None:
    """Make an update of any kind: a row may be removed and added again, or written to several times."""
    with table.update() as update:
        keys = list(table.rows())
        gone = rng.sample(keys, min(len(keys), rng.randrange(4)))
        update.remove(gone)
        update.add([row(rng) for _ in range(rng.randrange(4))])
        again = rng.sample(gone, rng.randrange(len(gone) + 1))
        update.add([row(rng) for _ in again], again)
        for key in rng.sample(sorted({*keys} - {*gone}), min(len(keys) - len(gone), rng.randrange(4))):
            name = rng.choice(list(COLUMNS))
            update.modify({key: {name: row(rng)[name]}})


def satisfying(rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if row["Size"] is not None and row["Size"] > 1}


def last(rows: Rows, *by: str) -> dict[str, dict[str, Any]]:
    return {str([row[name] for name in by]): row for _, row in sorted(rows.items())}


def shown(rows: Mapping[int, Mapping[str, Any]]) -> str:
    return str(sorted(rows.items()))


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_views_are_at_every_update_what_the_table_says(seed: int, partial: bool) -> None:
    rng, table = Random(seed), LiveTable(COLUMNS, partial_columns=partial)
    change(table, rng)
    large, by_sym = where(table, "Size > 1"), last_by(table, "Sym")
    by_both, of_large, one = last_by(table, "Sym", "Price"), last_by(large, "Sym"), last_by(table)
    keys: dict[str, int] = {}
    for _ in range(60):
        change(table, rng)
        rows = table.rows()
        assert shown(large.rows()) == shown(satisfying(rows))
        for view, of, by in (
            (by_sym, rows, ["Sym"]),
            (by_both, rows, ["Sym", "Price"]),
            (of_large, satisfying(rows), ["Sym"]),
            (one, rows, []),
        ):
            assert sorted(map(str, view.rows().values())) == sorted(map(str, last(of, *by).values()))
        now = {str(row["Sym"]): key for key, row in by_sym.rows().items()}
        assert all(now[sym] == key for sym, key in keys.items() if sym in now and sym in keys)
        keys = now


def test_an_update_that_does_not_concern_a_view_is_none() -> None:
    table = LiveTable(COLUMNS)
    with table.update() as update:
        update.add([{"Sym": "AAPL", "Size": 1}, {"Sym": "AAPL", "Size": 5}])
    large, newest = where(table, "Size > 1"), last_by(table, "Sym")
    with table.update() as update:
        update.modify({0: {"Price": 2.0}})
    assert (large.updates, newest.updates) == (1, 1)
    for view in (large, newest):
        view.close()
    with table.update() as update:
        update.remove([1])
    assert (len(large), len(newest)) == (1, 1)


def test_what_a_view_cannot_be_made_of_is_named() -> None:
    table = LiveTable(COLUMNS)
    with pytest.raises(InvalidValue, match="no column Nope"):
        where(table, "Nope = 1")
    for name in ("Nope", "Tags"):
        with pytest.raises(LocalProtocolError, match=f"rows cannot be grouped by {name}"):
            last_by(table, name)


def test_the_example_of_the_seed_with_views_that_are_exported_and_followed() -> None:
    table = LiveTable({"Date": "String", "Sym": "String", "Bid": "Double"})
    with TableServer.start() as server:
        server.export_table("Quotes", last_by(where(table, "Date=`2017-08-25`"), "Sym"))
        with table.update() as update:
            update.add([{"Date": "2017-08-25", "Sym": "AAPL", "Bid": 1.0}, {"Date": "2017-08-24", "Sym": "IBM"}])
        with Peer(server.port) as peer:
            peer.subscribe(1, "Quotes", SubscribeMode.SNAPSHOT_WITH_UPDATES)
            peer.update()
            with table.update() as update:
                update.add([{"Date": "2017-08-25", "Sym": "AAPL", "Bid": 2.0}])
            peer.update()
            (only,) = peer.tables[1].values()
            assert (only["Sym"], only["Bid"]) == ("AAPL", 2.0)
