"""Where a feed can live: an engine that runs its Spark, and a store that holds its tables.

An engine is Spark inside the job (``local``), a standalone cluster (``cluster``) or a Connect server (``connect``). A
store is a folder (``disk``) or ``s3``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from silverfold.pipelines.places import Places
from silverfold.pipelines.spark.jars import jar_options
from tests.cluster import daemons
from tests.cluster.daemons import HOST
from tests.cluster.market import Market

SMALL: Final = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}
LOCAL: Final = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": daemons.SHORT_LIVED,
}
ON_LOOPBACK: Final = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": daemons.SHORT_LIVED,
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": daemons.SHORT_LIVED,
}
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def inline_table(values: Mapping[str, str]) -> str:
    """Return settings as TOML in one line; a value in braces is a reference."""
    pairs = (f'"{name}" = {value if value.startswith("{") else json.dumps(value)}' for name, value in values.items())
    return f"{{ {', '.join(pairs)} }}"


def on_cluster(master: str, python: Path) -> dict[str, str]:
    """Return the options of an application on a standalone cluster, whose tasks run a Python."""
    return {**SMALL, **ON_LOOPBACK, "spark.master": master, "spark.pyspark.python": str(python)}


@contextmanager
def deployed(name: str, folder: Path) -> Iterator[Market]:
    """Run what a deployment has beside silverfold, and yield a feed for it.

    Args:
        name: An engine and a store: ``cluster on disk``. On S3 there is ``local`` alone.
        folder: Empty; for settings, logs, executors and, with ``disk``, the tables.
    """
    engine, _, store = name.rpartition(" on ")
    with ExitStack() as stack:
        places, settings = Places(str(folder / "lake")), {}
        if store == "s3":
            pytest.importorskip("moto", reason="the store comes with the extra nightly")
            options = daemons.store_options(stack.enter_context(daemons.object_store()))
            places = Places(f"s3://{daemons.BUCKET}/w", options)
            reference = {"AWS_SECRET_ACCESS_KEY": '{ env = "LAKE_SECRET" }'}
            settings = {
                "LAKE_SECRET": daemons.SECRET,
                "SILVERFOLD__STORAGE_OPTIONS": inline_table({**options, **reference}),
            }
        python, spark = daemons.python_without(folder / "python"), LOCAL
        if engine == "cluster":
            spark = on_cluster(stack.enter_context(daemons.standalone_cluster(folder / "cluster")), python)
        if engine == "connect":
            server = daemons.connect_server(folder / "server", {**LOCAL, **DELTA, **jar_options({})}, python)
            spark = {**SMALL, "spark.remote": stack.enter_context(server)}
        settings |= {
            "SILVERFOLD_ENV": "local" if engine == "local" else "cluster",
            "SILVERFOLD__WAREHOUSE": places.warehouse,
            "SILVERFOLD__SPARK": inline_table(spark),
        }
        yield stack.enter_context(closing(Market(folder / "conf", settings, places)))
