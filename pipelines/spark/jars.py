"""The Delta JARs: which ones fit the installed Spark, and how its JVM gets them.

Once fetched, they are on the class path of JVMs on this machine: Ivy need not resolve them at each start, and their
classes can be archived (`pipelines.spark.class_archive`). A cluster's executors get them from the driver, as Spark does
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from zipfile import is_zipfile

import pyspark

from silverfold.conf.errors import SparkUnavailable

CLASS_PATH = "spark.driver.extraClassPath"

_FITTING = {
    "4.0": "io.delta:delta-spark_2.13:4.0.0",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
"""Maven coordinates of the Delta JARs, by the Spark that they are compiled for."""

SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:aircompressor",
    "javax.annotation:javax.annotation-api",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.locationtech.jts:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""Dependencies of Delta not to fetch again: Spark has them, and newer. 13 of 87 MB are left."""

FETCHED = (
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-kernel-defaults-4.4.0.jar",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)
"""The remaining files for Spark 4.2, as Ivy names them."""

_IVY = "spark.jars.ivy"
_DEFAULT_IVY = ".ivy2.5.2"
"""Default folder of Spark 4.2, in the user's home."""


def fitting_delta(spark: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of the Delta JARs that fit a version of Spark, by default the installed one.

    Raises:
        SparkUnavailable: None are known.
    """
    found = _FITTING.get(".".join(spark.split(".")[:2]))
    if found is None:
        known = ", ".join(_FITTING)
        raise SparkUnavailable(f"no Delta is known to fit Spark {spark}: use Spark {known}, or name JARs in spark.jars")
    return found


def jar_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that give Spark the Delta JARs; none if the options already do.

    Raises:
        SparkUnavailable: No Delta is known to fit the installed Spark.
    """
    packages, jars = options.get("spark.jars.packages", ""), options.get("spark.jars", "")
    if "delta-spark" in packages + jars + options.get(CLASS_PATH, ""):
        return {}
    delta = fitting_delta()
    fetched = [_folder(options) / name for name in FETCHED] if delta == _FITTING["4.2"] else []
    if fetched and options.get("spark.master", "").startswith("local") and all(map(is_zipfile, fetched)):
        return {CLASS_PATH: os.pathsep.join([*filter(None, [options.get(CLASS_PATH)]), *map(str, fetched)])}
    excludes = [*SHIPPED_WITH_SPARK, *filter(None, [options.get("spark.jars.excludes")])]
    return {
        "spark.jars.packages": ",".join(filter(None, [delta, packages])),
        "spark.jars.excludes": ",".join(excludes),
    }


def _folder(options: Mapping[str, str]) -> Path:
    return Path(options.get(_IVY) or Path.home() / _DEFAULT_IVY, "jars")
