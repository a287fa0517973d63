"""The plugin of pytest: its fixtures where nothing else has them, and that it costs nothing where they are not used."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from pyspark.sql import SparkSession

from silverfold.jobs.testing import plugin

ROOT = Path(__file__).parents[3]

TESTS = """
import sys

def test_nothing_is_loaded_with_the_plugin():
    assert {name for name in sys.modules if name.startswith(("silverfold", "pyspark", "pydantic", "pyarrow"))} == {
        "silverfold", "silverfold.jobs", "silverfold.jobs.testing", "silverfold.jobs.testing.plugin"
    }

def test_a_warehouse_is_an_empty_folder(warehouse):
    assert list(warehouse.iterdir()) == []
    (warehouse / "bronze").mkdir()

def test_each_test_has_its_own(warehouse):
    assert list(warehouse.iterdir()) == []

def test_the_helpers_load_no_spark():
    import silverfold.testing
    assert "pyspark" not in sys.modules
    assert all(getattr(silverfold.testing, name).__doc__ for name in silverfold.testing.__all__)
"""


def test_pytest_finds_the_plugin_and_loads_nothing_with_it(tmp_path: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"silverfold": plugin.__name__}
    (tmp_path / "test_mine.py").write_text(TESTS)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", plugin.__name__, "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_session_that_was_there_before_goes_on(spark: SparkSession):
    with plugin.started({"spark.sql.shuffle.partitions": "3"}) as beside:
        assert beside is not spark
        assert beside.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.range(2).count() == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
