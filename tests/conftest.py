"""What all tests share: one Spark session per worker, a warehouse each, and how much hypothesis tries."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Whatever the environment says, what is compiled is kept: dozens of processes that tests start load the same modules,
# and pytest takes longer to rewrite the asserts of all tests than to collect them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A script's background ignores Ctrl-C, and so would every process that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,  # a red run is red again
    max_examples=40,
    deadline=None,  # two shared cores: time says nothing
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("nightly", max_examples=3_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


_TOLD_ONCE = frozenset({"story", "every_type", "one_cut"})
"""Fixtures that take a build or more."""


_REMOTE = "SILVERFOLD_TESTS_REMOTE"


_NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the session, and run all that needs a Spark last: most mistakes show in the first seconds.

    Tests that look at one build together stay with one worker, as do quick tests of a file: what they share is made
    once, and handing out thousands of tests one by one takes longer than running them. What is for the night is left
    to it, and what needs others' programs to whoever asks for it: ``-m interop``.
    """
    left_out = set() if _NIGHTLY else {"nightly"}
    if "interop" not in config.getoption("markexpr"):
        left_out.add("interop")
    marks = {item: {marker.name for marker in item.iter_markers()} for item in items}
    config.hook.pytest_deselected(items=[item for item in items if left_out & marks[item]])
    items[:] = [item for item in items if not left_out & marks[item]]
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
            marks[item].add("spark")
        if _TOLD_ONCE.intersection(fixtures):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
        elif not marks[item] & {"spark", "house", "xdist_group"}:
            item.add_marker(pytest.mark.xdist_group(f"quick ones of {item.location[0]}"))
    items.sort(key=lambda item: "spark" in marks[item])


def _session_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    ours = {"spark.sql.shuffle.partitions": "2"}
    if _REMOTE in os.environ:
        return {**ours, "spark.remote": os.environ[_REMOTE]}
    return {
        **ours,
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        # A worker's JVM lives for the whole run: its second compiler has paid after eight minutes, then saves a fifth.
        "spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC -XX:+UseTransparentHugePages",
        # Code that is generated for a few rows does not pay: 20 % less. Jobs that tests start themselves generate it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the worker's one session. Change its settings on an ``own_session`` only.

    With the URL of a Spark Connect server in ``SILVERFOLD_TESTS_REMOTE`` it is one of that server.
    """
    from silverfold.conf.load import load_settings  # noqa: PLC0415 - tests without Spark must not pay for loading it
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    local = load_settings(None, "local", {})
    ours = _session_options(tmp_path_factory)
    session = start_spark(local.model_copy(update={"spark": {**local.spark, **ours}}), app="silverfold tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def remote(spark: SparkSession) -> str:
    """Return the URL of a Spark Connect server: the JVM of the worker's session. Not for its own process."""
    from tests.support.connect import serve  # noqa: PLC0415 - as above

    return serve(spark)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return an empty folder for tables."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder
