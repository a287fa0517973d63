"""The engine on Spark Connect: no JVM in the process that builds, and none of its classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from tests.support.building_once import all_rows
from tests.support.deephaven.landed_history import LandedHistory

ROOT = Path(__file__).parents[3]

AFTER_EVERY_PART = "tests/scenarios/test_scenarios.py::test_a_build_after_every_part_shows_the_table_of_that_part"

MAIN_SCENARIOS = [
    f"{AFTER_EVERY_PART}[snapshot-replaces-and-leaves-equal-rows-unwritten]",
    f"{AFTER_EVERY_PART}[keyed-rows-move-and-swap]",
    "tests/transforms/autocdc/test_apply.py::test_of_each_key_the_last_change_wins_in_whatever_order_they_come",
    "tests/transforms/autocdc/test_apply.py::test_a_batch_applied_twice_is_applied_once",
    "tests/transforms/test_history.py::test_moves_after_a_snapshot_in_the_same_cut_carry_its_rows",
    "tests/pipelines/upkeep/test_rebuild.py::test_a_spoilt_table_is_right_again_and_stands_where_it_stood",
    "tests/jobs/test_sql.py::test_the_command_prints_csv_where_no_terminal_is",
    "tests/jobs/test_sql.py::test_an_error_while_the_query_runs_is_one_line",
]


@pytest.mark.nightly
def test_the_main_scenarios_hold(remote: str) -> None:
    """Run tests that stand elsewhere once more, in a process whose session is one of a Connect server."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", *MAIN_SCENARIOS],
        cwd=ROOT,
        env=os.environ | {"SILVERFOLD_TESTS_REMOTE": remote},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_build_whose_table_holds_ends(remote: str, tmp_path: Path) -> None:
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(
        f'warehouse = "{tmp_path}/lake"\nspark = {{ "spark.remote" = "{remote}" }}\n'
    )
    tables = '[tables.good]\nsource = "G"\n[tables.bad]\nsource = "B"\n'
    (tmp_path / "feeds/market.toml").write_text(f'connector = "deephaven"\naddress = "unused:1"\n{tables}')
    history = LandedHistory({"good": {"Qty": "Long"}, "bad": {"_position": "Long"}})
    history.connect()
    history.snapshot("good", {1: {"Qty": 1}})
    history.snapshot("bad", {1: {"_position": 1}})
    history.land(Places(f"{tmp_path}/lake").bronze("market"), "market")

    done = subprocess.run(
        [sys.executable, "-m", "silverfold.jobs.cli", "--conf", str(tmp_path), "build", "market"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("silverfold: bad holds: bad: the source has a column _position")
    assert [row["Qty"] for row in all_rows(open_table(Places(f"{tmp_path}/lake").silver("market", "good")))] == [1]
