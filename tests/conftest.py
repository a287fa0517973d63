"""What all tests share: the options of a worker's one Spark session, the order of tests, the hypothesis profiles."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import hypothesis
import pytest
import structlog

from silverfold.jobs.testing import plugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Always write bytecode, whatever the environment says: tests start dozens of processes that load the same modules, and
# pytest takes longer to rewrite the asserts of all tests than to collect them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Background jobs of a script ignore SIGINT, and so would every process that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Rich renders the local variables of every frame: up to a minute of processor time for one logged error.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,  # failures are reproducible
    max_examples=40,
    deadline=None,  # timings on two shared cores are meaningless
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("nightly", max_examples=3_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


_SHARED_FIXTURES = frozenset({"story", "every_type", "one_cut", "golden", "prices", "market_built", "quotes_built"})
"""Fixtures of a module that take a build, or make a table: on several workers they would be made several times."""


_REMOTE = "SILVERFOLD_TESTS_REMOTE"


_NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin of these sources, unless they are installed: ``spark`` and ``warehouse`` are its fixtures.

    Let Spark 4.0 leave its threads' sockets to the garbage collector, as it does; a later one closes them.
    """
    if not config.pluginmanager.is_registered(plugin):
        config.pluginmanager.register(plugin)
    if version("pyspark").startswith("4.0"):
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use the session, and run Spark tests last: most failures then show in the first seconds.

    Checks of the source come first: mypy takes longer than any other test without Spark, and no worker waits for it.
    Tests that share one build are grouped on one worker, as are the quick tests of a file: shared fixtures are built
    once, and distributing thousands of tests one by one takes longer than running them. Nightly tests are deselected by
    default, and so are tests of third-party programs, selected by ``-m interop``.
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
        if _SHARED_FIXTURES.intersection(fixtures):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
        elif not marks[item] & {"spark", "house", "xdist_group"}:
            item.add_marker(pytest.mark.xdist_group(f"quick ones of {item.location[0]}"))
    items.sort(key=lambda item: ("spark" in marks[item], "house" not in marks[item]))


def pytest_collection_finish() -> None:
    """Keep what was collected out of garbage collection: a tenth less processor time for tests without Spark."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark_options() -> dict[str, str]:
    """Return options of the worker's only session. Change settings on an ``own_session`` only.

    It is on the Spark Connect server whose URL is in ``SILVERFOLD_TESTS_REMOTE``, if set.
    """
    ours = {"spark.sql.shuffle.partitions": "2"}
    if _REMOTE in os.environ:
        return {**ours, "spark.remote": os.environ[_REMOTE]}
    return {
        **ours,
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        # A worker's JVM lives for the whole run: the C2 compiler pays off after eight minutes, then saves a fifth.
        "spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC -XX:+UseTransparentHugePages",
        # Code generation for a few rows does not pay off: 20 % less time without. Jobs that tests start still use it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


@pytest.fixture(scope="session")
def remote(spark: SparkSession) -> str:
    """Return the URL of a Spark Connect server in the JVM of the worker's session. For use by other processes only."""
    from tests.support.connect import serve  # noqa: PLC0415 - as above

    return serve(spark)


@pytest.fixture(autouse=True)
def unconfigured_logs() -> Iterator[None]:
    """Undo how a test configured the logs: a command prints more details of an error once they are."""
    yield
    structlog.reset_defaults()
