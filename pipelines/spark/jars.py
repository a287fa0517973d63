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

CLASS_PATH = "spark.driver.extraClassPath"

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""Maven coordinate of the Delta JARs that fit the pinned pyspark."""

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
"""Dependencies of `DELTA` not to fetch again: Spark has them, and newer. 13 of 87 MB are left."""

FETCHED = (
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-kernel-defaults-4.4.0.jar",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)
"""The remaining files, as Ivy names them."""

_IVY = "spark.jars.ivy"
_DEFAULT_IVY = ".ivy2.5.2"
"""Default folder of Spark 4.2, in the user's home."""


def jar_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that give Spark the Delta JARs; none if the options already do."""
    packages, jars = options.get("spark.jars.packages", ""), options.get("spark.jars", "")
    if "delta-spark" in packages + jars + options.get(CLASS_PATH, ""):
        return {}
    fetched = [_folder(options) / name for name in FETCHED]
    if options.get("spark.master", "").startswith("local") and all(map(is_zipfile, fetched)):
        return {CLASS_PATH: os.pathsep.join([*filter(None, [options.get(CLASS_PATH)]), *map(str, fetched)])}
    excludes = [*SHIPPED_WITH_SPARK, *filter(None, [options.get("spark.jars.excludes")])]
    return {
        "spark.jars.packages": ",".join(filter(None, [DELTA, packages])),
        "spark.jars.excludes": ",".join(excludes),
    }


def _folder(options: Mapping[str, str]) -> Path:
    return Path(options.get(_IVY) or Path.home() / _DEFAULT_IVY, "jars")
