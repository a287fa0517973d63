"""A database of eleven tables, worked on by one process, received and built by others: killed, and all is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.connectors.frames import Kind
from silverfold.pipelines.landing.bronze import read_frames
from tests.support.building_once import all_rows
from tests.support.processes import FeedProcesses
from tests.support.sqlitecloud.live import reached
from tests.support.sqlitecloud.peer import Peer
from tests.support.sqlitecloud.same import unlike

pytestmark = pytest.mark.xdist_group("kills")

SCHEMA = Path(__file__).parents[1] / "golden/sqlitecloud/music_shop.sql"
KEYS = {
    "Album": ("AlbumId",),
    "Artist": ("ArtistId",),
    "Customer": ("CustomerId",),
    "Employee": ("EmployeeId",),
    "Genre": ("GenreId",),
    "Invoice": ("InvoiceId",),
    "InvoiceLine": ("InvoiceLineId",),
    "MediaType": ("MediaTypeId",),
    "Playlist": ("PlaylistId",),
    "PlaylistTrack": ("PlaylistId", "TrackId"),
    "Track": ("TrackId",),
}

FEED = """
connector = "sqlitecloud"
address = "sqlitecloud://127.0.0.1:{port}/shop.db?insecure=1&apikey=any"
commit = {{ interval_ms = 20 }}
reconnect = {{ first = 0.1, longest = 0.5 }}
tables.Invoice.types.Total = "decimal(10, 2)"
"""


class Shop(FeedProcesses):
    """A folder with a database and a feed of it, and the processes that serve, receive and build it."""

    TABLES = tuple(KEYS)

    def __init__(self, folder: Path, rng: Random) -> None:
        super().__init__(folder, rng)
        self.path = folder / "shop.db"
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.executescript(SCHEMA.read_text(encoding="utf-8"))
        self.port, self.simulations = 0, 0
        self.simulate()
        tables = [f"[tables.{name}]\n" for name in KEYS if name != "Invoice"]
        self.receive_as("".join([FEED.format(port=self.port), *tables]))

    def simulate(self, *arguments: str) -> None:
        """Serve the database, and let made-up changes be made in all tables."""
        self.simulations += 1
        chosen = ("--port", str(self.port), "--seed", str(self.simulations), "--changes-per-second", "300", *arguments)
        process = self.start("simulate", "sqlitecloud", "--database", str(self.path), *chosen, is_read=True)
        assert process.stdout is not None
        self.port = int(process.stdout.readline().rpartition(":")[2])

    def come_to_rest(self) -> None:
        before = self.progress()
        self.kill("simulate")
        self.simulate("--changes-for", "0.5")
        self.await_quiet()
        self.until(lambda: self.progress() > before and not reached(self.bronze, KEYS)[2])
        with Peer(self.port) as peer:
            peer.ask("USE DATABASE shop.db; INSERT INTO Genre(Name) VALUES ('the last of all')")
        self.until(self.has_received, b"the last of all")
        self.stop("receive")

    def progress(self) -> int:
        """Return the epoch that landed last."""
        return reached(self.bronze, KEYS)[1]

    def has_received(self, text: bytes) -> bool:
        """Tell whether a notification with a text has landed, and so has whatever was notified before."""
        return any(text in frame.body for frame in read_frames(self.bronze, kind=Kind.DATA))

    def stored(self, table: str) -> list[dict[str, Any]]:
        """Return the rows as Python's own SQLite reads them."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]

    def silver(self, table: str) -> list[dict[str, Any]]:
        return all_rows(DeltaTable(self.places.silver("shop", table).url))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, Random(5))) as shop:
        yield shop


@pytest.mark.nightly
@pytest.mark.parametrize("builds", [False, True])
def test_whoever_is_killed_when_every_table_is_what_the_database_holds(
    spark: SparkSession, shop: Shop, *, builds: bool
) -> None:
    shop.survive("receive", "simulate", "receive", "simulate", "receive", *["build"] * 2 * builds)

    assert {name: unlike(shop.stored(name), shop.silver(name), KEYS[name]) for name in KEYS} == {
        name: [] for name in KEYS
    }
    assert min(len(shop.stored(name)) for name in KEYS) > 3
    assert shop.run("verify", "shop") == 0
