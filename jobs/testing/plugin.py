"""The plugin of pytest: fixtures for tests of feeds and of what is made of silver tables.

pytest loads it wherever silverfold is installed (entry point ``pytest11``, name ``silverfold``). It loads neither Spark
nor settings until a test asks for a fixture that needs them. A fixture of the same name in a ``conftest.py`` replaces
one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_options() -> Mapping[str, str]:
    """Return options of Spark over those of the environment ``local``. Override it in a ``conftest.py``."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_options: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session with Delta, as silverfold starts it, for all tests of the process: 7 to 10 seconds.

    Settings of a project do not apply, nor variables ``SILVERFOLD__…``.
    """
    folder = str(tmp_path_factory.mktemp("spark-warehouse"))
    with started({"spark.sql.warehouse.dir": folder, **spark_options}) as session:
        yield session


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return an empty folder for the tables of one test."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder


@contextmanager
def started(options: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session of the environment ``local`` with some options; stop it, unless Spark ran before.

    A session that runs already goes on: the one yielded is beside it, and has what options can still be set.
    """
    from silverfold.conf.load import load_settings  # noqa: PLC0415 - tests without Spark must not pay for loading it
    from silverfold.pipelines.spark.running import active_session  # noqa: PLC0415 - as above
    from silverfold.pipelines.spark.session import start_spark  # noqa: PLC0415 - as above

    local, running = load_settings(None, "local", {}), active_session()
    settings = local.model_copy(update={"spark": {**local.spark, **options}})
    session = start_spark(settings, app="silverfold tests", running=running)
    yield session
    if running is None:
        session.stop()
