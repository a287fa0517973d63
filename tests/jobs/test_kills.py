"""Jobs killed by SIGKILL at every step, and while their JVM writes: what stands then, and that the next run ends as if
nothing had been.

Where nothing is being written, only the Python process is killed, a Spark Connect client: its server is the tests' own
JVM, so that it starts in seconds. Where Delta writes, the JVM is killed too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from silverfold.jobs import cli
from silverfold.pipelines.landing.bronze_table import retained_from
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.cuts import read_cuts
from silverfold.pipelines.store import open_table
from tests.support.deephaven.landed_history import LandedHistory
from tests.support.processes import A_JVM_OF_ITS_OWN

pytestmark = pytest.mark.xdist_group("kills")

PATIENCE = 240.0
"""Seconds for a start of Spark on a busy machine."""

ROOT = Path(__file__).parents[2]

SETTINGS = """
[build.cut]
max_frames = 4  # an update each
"""

FEED = """
connector = "deephaven"
address = "unused:1"
[tables.quotes]
source = "Quotes"
"""


class Kill(NamedTuple):
    """Where a process dies."""

    step: str
    when: str


class Market:
    """A feed with the table quotes: a snapshot, then an update after another of row 1, three frames each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.places = folder, Places(str(folder / "lake"))
        (folder / "feeds").mkdir()
        (folder / "settings.toml").write_text(SETTINGS)
        (folder / "feeds/market.toml").write_text(FEED)
        self.history = LandedHistory({"quotes": {"Qty": "Long"}})

    def epoch(self, *quantities: int) -> None:
        """Land a connection's three frames, a snapshot, then an update for each further quantity."""
        first, *others = quantities
        self.history.connect()
        self.history.snapshot("quotes", {1: {"Qty": first}, 2: {"Qty": 0}})
        for quantity in others:
            self.update(quantity)
        self.history.land(self.places.bronze("market"), "market")

    def update(self, quantity: int) -> None:
        self.history.update("quotes", modified={1: {"Qty": quantity}})

    def killed(self, kill: Kill, *job: str, remote: str | None = None) -> set[str]:
        """Run a job until it is killed; return the data files it left in silver that no commit names."""
        self.silver.mkdir(parents=True, exist_ok=True)
        before = self.uncommitted()
        arguments = [*kill, str(self.silver), "--conf", str(self.folder), *job]
        spark = A_JVM_OF_ITS_OWN if remote is None else f'{{ "spark.remote" = "{remote}" }}'
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.killed", *arguments],
            cwd=ROOT,
            env=os.environ | {"SILVERFOLD__WAREHOUSE": str(self.folder / "lake"), "SILVERFOLD__SPARK": spark},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        return self.uncommitted() - before

    def run(self, *job: str) -> int | str | None:
        """Run a job to its end, in the tests' session; return its exit code."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SILVERFOLD__WAREHOUSE", str(self.folder / "lake"))
            with pytest.raises(SystemExit) as left:
                cli.main(["--conf", str(self.folder), *job])
        return left.value.code

    @property
    def silver(self) -> Path:
        return self.folder / "lake/silver/market/quotes"

    def rows(self) -> dict[int, tuple[int, int]] | None:
        """Return quantity and position by row key; None when there is no table."""
        opened = open_table(self.places.silver("market", "quotes"))
        if opened is None:
            return None
        found = pa.table(QueryBuilder().register("quotes", opened).execute("SELECT * FROM quotes").read_all())
        return {row["_row_key"]: (row["Qty"], row["_position"]) for row in found.to_pylist()}

    def uncommitted(self) -> set[str]:
        """Return the data files in silver's folder that no version of the table has ever had."""
        log = "".join(commit.read_text() for commit in self.silver.glob("_delta_log/*.json"))
        return {
            file.name for file in self.silver.glob("part-*.parquet") if file.name not in log and not _is_empty(file)
        }


def _is_empty(file: Path) -> bool:
    """Tell whether a file is whole and has no rows: Spark's first partition always writes one, Delta names none."""
    try:
        return pq.read_metadata(file).num_rows == 0
    except pa.ArrowInvalid:
        return False


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return Market(tmp_path)


STEPS = [
    (Kill("silverfold.pipelines.planning.feed_plan:silver_position", "after"), None),
    (Kill("silverfold.pipelines.applying.cut_job:statistics_of", "decoding"), 0),
    (Kill("silverfold.pipelines.applying.write:merge", "before"), 0),
    (Kill("silverfold.pipelines.applying.build:record", "before"), 1),
    (Kill("silverfold.pipelines.applying.build:record", "after"), 2),
]
"""Steps of a build, in the order of their kills; with the last quantity in silver once it was killed there."""
WHILE_WRITING = (Kill("silverfold.pipelines.applying.write:merge", "during"), 2)
"""The last one, in a JVM of its own: nothing else leaves files in silver that no commit names."""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(STEPS[2:4], id="before it writes and before it records"),
        pytest.param([*STEPS, WHILE_WRITING], id="at every step", marks=pytest.mark.nightly),
    ],
)
def test_a_build_killed_at_step_after_step_ends_as_one_that_never_was(
    spark: SparkSession, remote: str, market: Market, tmp_path: Path, steps: Sequence[tuple[Kill, int | None]]
) -> None:
    market.epoch(0, 1, 2, 3)  # positions 0 to 2; 3 to 5; 6 to 8, 9 to 11, 12 to 14
    shown, left_over = [], []
    for step in steps:
        server = None if step is WHILE_WRITING else remote
        left_over.append(bool(market.killed(step[0], "build", "market", remote=server)))
        shown.append(market.rows())

    assert market.run("build", "market") == 0

    assert shown == [
        None if quantity is None else {1: (quantity, 4 + 3 * quantity), 2: (0, 4)} for _, quantity in steps
    ]
    assert left_over == [step is WHILE_WRITING for step in steps]
    assert market.run("verify", "market") == 0
    assert [cut.last_position for cut in read_cuts(market.places, "market")] == [5, 8, 11, 14]
    (tmp_path / "undisturbed").mkdir()
    undisturbed = Market(tmp_path / "undisturbed")
    shutil.copytree(tmp_path / "lake/bronze", tmp_path / "undisturbed/lake/bronze")
    assert undisturbed.run("build", "market") == 0
    assert market.rows() == undisturbed.rows() == {1: (3, 13), 2: (0, 4)}


@pytest.mark.nightly
def test_maintenance_killed_while_it_writes_leaves_a_table_that_verifies_and_is_maintained_next_time(
    spark: SparkSession, remote: str, market: Market
) -> None:
    market.epoch(0, 1)
    market.epoch(2, 3, 4)
    assert market.run("build", "market") == 0
    before, version = market.rows(), DeltaTable(str(market.silver)).version()
    market.killed(
        Kill("silverfold.pipelines.upkeep.retention:write_deltalake", "after"), "maintain", "market", remote=remote
    )
    verified = [market.run("verify", "market")]
    left_over = market.killed(
        Kill("silverfold.pipelines.upkeep.maintain:Maintenance._optimize", "during"), "maintain", "market"
    )
    verified.append(market.run("verify", "market"))

    assert (verified, len(left_over)) == ([0, 0], 1)
    assert (market.rows(), DeltaTable(str(market.silver)).version()) == (before, version)

    assert market.run("maintain", "market") == 0

    bronze = market.places.bronze("market")
    assert retained_from(bronze, "market") > 0
    assert DeltaTable(bronze.url).metadata().configuration["delta.appendOnly"] == "true"
    assert len(DeltaTable(str(market.silver)).file_uris()) == 1
    assert (market.rows(), market.run("verify", "market")) == (before, 0)


@pytest.mark.nightly
def test_a_rebuild_killed_in_its_swap_leaves_the_old_table_and_is_done_next_time(
    spark: SparkSession, market: Market
) -> None:
    market.epoch(0, 1)
    assert market.run("build", "market") == 0
    spark.sql(f"UPDATE delta.`{market.silver}` SET Qty = 7 WHERE _row_key = 2").collect()

    left_over = market.killed(
        Kill("silverfold.pipelines.storage.swap:_overwrite", "during"), "rebuild", "market", "quotes"
    )

    assert (market.rows(), len(left_over)) == ({1: (1, 7), 2: (7, 4)}, 1)
    assert market.run("verify", "market") == 1
    assert market.run("rebuild", "market", "quotes") == 0
    assert (market.rows(), market.run("verify", "market")) == ({1: (1, 7), 2: (0, 4)}, 0)
    assert [folder.name for folder in market.silver.parent.iterdir()] == ["quotes"]
