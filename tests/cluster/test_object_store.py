"""A warehouse on S3: what lands by delta-rs is built by two Sparks, kept small, verified; logs are set aside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow.fs import FileSelector

from silverfold.connectors.sqlitecloud_webhooks.receiver.landing import Landing
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.remove_tree import set_damaged_log_aside
from silverfold.pipelines.store import files_of, open_table
from tests.cluster.daemons import SECRET, object_store, store_options
from tests.cluster.market import Market
from tests.support.sqlitecloud.webhooks import FEED, webhook

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.xdist_group("deployments")]

pytest.importorskip("moto", reason="the store comes with the extra nightly")

FEED_FILE = """
connector = "sqlitecloud_webhooks"
address = "127.0.0.1:8090"
[options]
database = "chinook.sqlite"
insecure = true
[tables.albums]
keys = ["AlbumId"]
types = { AlbumId = "bigint" }
stored_as_scd_type = 2
"""
CUTS = 8
PER_CUT = 10
SPARK_WITHIN = 500


@pytest.fixture
def store() -> Iterator[str]:
    """Return the URL of an S3 store that has one bucket."""
    with object_store() as url:
        yield url


def configure(folder: Path, store: str) -> None:
    (folder / "feeds").mkdir()
    (folder / f"feeds/{FEED}.toml").write_text(FEED_FILE)
    secret = {"AWS_SECRET_ACCESS_KEY": '{ env = "LAKE_SECRET" }'}
    lines = [f"{name} = {secret.get(name, json.dumps(value))}" for name, value in store_options(store).items()]
    cut = f"[build.cut]\nmax_frames = {PER_CUT}\n"
    (folder / "settings.toml").write_text("\n".join(['warehouse = "s3://lake/w"', "[storage_options]", *lines, cut]))


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "LAKE_SECRET": SECRET, "PYSPARK_PYTHON": sys.executable}
    line = [sys.executable, "-m", "silverfold.jobs.cli", "--conf", str(folder), *words]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(running: subprocess.Popen[str]) -> tuple[str, str]:
    out, log = running.communicate(timeout=SPARK_WITHIN)
    assert running.returncode == 0, out + log
    assert SECRET not in out + log
    return out, log


def test_two_builds_at_once_and_maintenance_on_s3(tmp_path: Path, store: str) -> None:
    configure(tmp_path, store)
    writer = BronzeWriter.open(Places("s3://lake/w", store_options(store)).bronze(FEED), FEED, token="test")
    batch = Batch(writer.last + 1)
    bodies = [webhook("insert" if n < 5 else "update", AlbumId=n % 5, Title=f"t{n}") for n in range(CUTS * PER_CUT)]
    landing = Landing(["chinook.sqlite/albums"])
    batch.add([frame for body in bodies for frame in landing.frames(body)], 1, 1_700_000_000)
    writer.append(batch.prepare().table)

    builds = [command(tmp_path, "build", FEED), command(tmp_path, "build", FEED)]
    applied = [ended(build)[1].count('"cut applied"') for build in builds]
    assert sum(applied) == CUTS, "each cut once, by one of the two"
    assert "joined" in ended(command(tmp_path, "maintain", FEED))[0]

    found = json.loads(ended(command(tmp_path, "verify", FEED, "--json"))[0])
    assert [(table["table"], table["verdict"]) for table in found["tables"]] == [
        ("albums", "equal"),
        ("albums__history", "equal"),
    ]
    assert found["tables"][1]["found_rows"] == CUTS * PER_CUT


@pytest.mark.parametrize("market", ["local on s3"], indirect=True)
def test_of_two_receivers_on_s3_the_first_loses_and_says_so(market: Market) -> None:
    market.receive()
    assert market.take_over() == 4
    assert "receive/market is another's now, stop one of the two" in market.log.read_text()
    market.change()
    (status,) = market.report("status", "market")["feeds"]
    assert (status["receiver"]["state"], status["epoch"]) == ("connected", 2)
    market.stop("receive")
    assert SECRET not in market.log.read_text()


def test_a_damaged_log_is_set_aside_on_s3(store: str) -> None:
    place = Places("s3://lake/w", store_options(store)).silver(FEED, "albums")
    for n in range(2):
        write_deltalake(place.url, pa.table({"n": [n]}), mode="append", storage_options=dict(place.storage_options))
    assert set_damaged_log_aside(place, "a") is None
    files = files_of(place)
    files.delete_file("_delta_log/00000000000000000000.json")

    assert set_damaged_log_aside(place, "a") == "s3://lake/w/silver/shop/albums/_delta_log.damaged-a"

    assert open_table(place) is None
    moved = files.get_file_info(FileSelector("_delta_log.damaged-a"))
    assert [file.base_name for file in moved] == ["00000000000000000001.json"]
