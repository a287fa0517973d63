"""A database of eleven tables, worked on by one process, received and built by others: killed, and all is there."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.load import load_settings
from silverfold.connectors.base import Kind
from silverfold.connectors.registry import open_feed
from silverfold.jobs import cli
from silverfold.pipelines.landing.bronze import read_frames
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from tests.jobs.test_kills import A_JVM_OF_ITS_OWN
from tests.support.building_once import all_rows
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
PATIENCE = 300.0

FEED = """
connector = "sqlitecloud"
address = "sqlitecloud://127.0.0.1:{port}/shop.db?insecure=1&apikey=any"
commit = {{ interval_ms = 20 }}
reconnect = {{ first = 0.1, longest = 0.5 }}
tables.Invoice.types.Total = "decimal(10, 2)"
"""


class Shop:
    """A folder with a database and a feed of it, and the processes that serve, receive and build it."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.rng, self.path = rng, folder / "shop.db"
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.executescript(SCHEMA.read_text(encoding="utf-8"))
        self.environ = {**os.environ, "PYTHONUNBUFFERED": "1", "SILVERFOLD__WAREHOUSE": str(folder / "lake")}
        self.conf, self.log = ("--conf", str(folder)), folder / "log"
        self.port, self.simulations = 0, 0
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.simulate()
        (folder / "feeds").mkdir()
        tables = [f"[tables.{name}]\n" for name in KEYS if name != "Invoice"]
        (folder / "feeds/shop.toml").write_text("".join([FEED.format(port=self.port), *tables]))
        self.settings = load_settings(folder, "local", self.environ)
        self.connector, self.feed = open_feed("shop", self.settings)
        self.places = Places(self.settings.warehouse)
        self.bronze = self.places.bronze("shop")
        self.receive()

    def start(self, name: str, module: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Run a process, a group of its own."""
        with self.log.open("a") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", f"jobs.{module}", *arguments],
                env=self.environ | environ,
                stdout=subprocess.PIPE if module == "simulate" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self.running[name]

    def simulate(self, *arguments: str) -> None:
        """Serve the database, and let made-up changes be made in all tables."""
        self.simulations += 1
        chosen = ("--port", str(self.port), "--seed", str(self.simulations), "--changes-per-second", "300", *arguments)
        process = self.start("simulate", "simulate", "sqlitecloud", "--database", str(self.path), *chosen)
        assert process.stdout is not None
        self.port = int(process.stdout.readline().rpartition(":")[2])

    def receive(self) -> None:
        """Receive the feed; return once a new epoch has begun to land."""
        before = self.epoch()
        self.start("receive", "receive", *self.conf, "shop")
        self.until(lambda: self.epoch() > before)

    def build(self) -> None:
        """Build in a JVM of its own whatever lands; return once there is a table."""
        self.start("build", "build", *self.conf, "shop", "--follow", SILVERFOLD__SPARK=A_JVM_OF_ITS_OWN)
        self.until(lambda: any(open_table(self.places.silver("shop", name)) for name in KEYS))

    def kill(self, name: str) -> None:
        """Kill a process, and what it has started, at a moment nobody knows."""
        time.sleep(self.rng.uniform(0.0, 0.7))
        process = self.running.pop(name)
        assert process.poll() is None, self.log.read_text()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def come_to_rest(self) -> None:
        """Let the changes end, and the receiver once it has landed them all."""
        before = self.epoch()
        self.kill("simulate")
        self.simulate("--changes-for", "0.5")
        quiet = self.running["simulate"].stdout
        assert quiet is not None
        while not quiet.readline().startswith("quiet after"):
            assert self.running["simulate"].poll() is None
        self.until(lambda: self.epoch() > before and not reached(self.bronze, KEYS)[2])
        with Peer(self.port) as peer:
            peer.ask("USE DATABASE shop.db; INSERT INTO Genre(Name) VALUES ('the last of all')")
        self.until(self.has_received, b"the last of all")
        self.running["receive"].terminate()
        assert self.running["receive"].wait(PATIENCE) == 0

    def epoch(self) -> int:
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

    def until(self, met: Callable[..., object], *given: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while not met(*given):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def run(self, *job: str) -> int | str | None:
        """Run a job to its end, in the tests' session; return its exit code."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SILVERFOLD__WAREHOUSE", self.settings.warehouse)
            with pytest.raises(SystemExit) as left:
                cli.main([*self.conf, *job])
        return left.value.code

    def close(self) -> None:
        """Leave no process behind."""
        for name in list(self.running):
            process = self.running.pop(name)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, Random(5))) as shop:
        yield shop


@pytest.mark.nightly
@pytest.mark.parametrize("builds", [False, True])
def test_whoever_is_killed_when_every_table_is_what_the_database_holds(
    spark: SparkSession, shop: Shop, *, builds: bool
) -> None:
    victims = ["receive", "simulate", "receive", "simulate", "receive", *["build"] * 2 * builds]
    shop.rng.shuffle(victims)
    if builds:
        shop.build()
    for victim in victims:
        shop.kill(victim)
        {"receive": shop.receive, "simulate": shop.simulate, "build": shop.build}[victim]()
    shop.come_to_rest()
    if builds:
        shop.kill("build")

    assert shop.run("build", "shop") == 0

    assert {name: unlike(shop.stored(name), shop.silver(name), KEYS[name]) for name in KEYS} == {
        name: [] for name in KEYS
    }
    assert min(len(shop.stored(name)) for name in KEYS) > 3
    assert shop.run("verify", "shop") == 0
