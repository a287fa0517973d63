"""The only place where a Spark session is built.

Laws: times are UTC; every session can read and write Delta; the Delta JARs fit the installed Spark; a machine where
Spark cannot start gets one error that says what to do, and none of Java's own noise.

Options come in three layers, later wins: `SESSION` (what this project needs anywhere), the ``spark`` table of the
settings, and nothing else. Where a session is already running (a notebook, a Databricks job) it is used as it is:
only options that a running session may change are set on it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from conf.errors import SparkUnavailable
from pipelines.java import JvmOutput, check_java

if TYPE_CHECKING:
    from conf.model import Settings

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

SESSION = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Frames may be megabytes each: 10,000 of them in one Arrow batch would not fit a Python worker.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def start_spark(settings: Settings, *, app: str) -> SparkSession:
    """Return the running session, or start one: 7 to 10 seconds, more when JARs must be fetched first.

    A session this call started lives as long as the process, or until its ``stop``. On a session that was
    already there, the caller's time zone becomes UTC too.

    Args:
        settings: Its ``spark`` table overrides every option set here, name by name.
        app: Name of the application, as Spark's own pages show it.

    Raises:
        SparkUnavailable: No Java, a Java that Spark does not run on, JARs that cannot be fetched, or an option
            that Spark refuses. The message says what to do.
    """
    options = {**SESSION, **settings.spark}
    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return _start({**options, **_jars(options), "spark.app.name": app})
    for name, value in options.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def stop_spark(session: SparkSession) -> None:
    """Stop a session that `start_spark` started, and wait until its JVM is gone: nothing of it writes any more."""
    gateway = SparkContext._gateway
    session.sparkContext.setLogLevel("OFF")  # tasks that still run lose what they work on, and would say so
    session.stop()
    if gateway is None or gateway.proc is None:  # spark-submit's JVM ends with this process
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which it takes as the word to end
    gateway.proc.wait()


def _jars(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that make Spark fetch the Delta JARs, unless the settings bring them."""
    packages, jars = options.get("spark.jars.packages", ""), options.get("spark.jars", "")
    if "delta-spark" in packages + jars:
        return {}
    excludes = [*SHIPPED_WITH_SPARK, *filter(None, [options.get("spark.jars.excludes")])]
    return {
        "spark.jars.packages": ",".join(filter(None, [DELTA, packages])),
        "spark.jars.excludes": ",".join(excludes),
    }


def _start(options: Mapping[str, str]) -> SparkSession:
    """Start a JVM and a session in it, holding back what the JVM prints until the session stands."""
    # Without it, Spark looks for "python3" on the PATH: another interpreter, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM
        check_java(os.environ)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # else each query error is also printed, as JSON
    logging.getLogger().addFilter(_is_no_interrupt)
    spark_conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    output = JvmOutput()
    try:
        with output.open() as pipe:
            gateway = launch_gateway(spark_conf, {"stdout": pipe, "stderr": pipe})
    except PySparkRuntimeError as error:
        raise _explained(output.text(), str(error)) from error
    except BaseException as interrupt:
        _end_half_started(interrupt)
        raise
    try:
        SparkContext(conf=spark_conf, gateway=gateway)
        session = SparkSession.builder.getOrCreate()
    except (PySparkException, Py4JError, ValueError) as error:
        told = str(error)  # asks the JVM, which must still be there
        gateway.shutdown()
        raise _explained(output.text(), told) from None
    output.pass_on()
    return session


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Keep back the traceback that py4j prints when it is interrupted, and then raises too."""
    return record.msg != "KeyboardInterrupt while sending command."


def _end_half_started(interrupt: BaseException) -> None:
    """End the JVM whose start was interrupted: pyspark keeps it in a local variable only, and it never ends itself."""
    for frame, _line in walk_tb(interrupt.__traceback__):
        for process in (frame.f_locals.get("proc"), frame.f_locals.get("self")):  # started, or just being started
            if isinstance(process, Popen) and process.pid and process.returncode is None:
                process.kill()
                process.wait()


def _explained(output: str, told: str) -> SparkUnavailable:
    """Turn what the JVM printed before it gave up into what the user can do about it."""
    if re.search("unresolved dependency|download failed", output):
        missing = re.findall(r"^\s*:: (\S+): not found$", output, re.MULTILINE) or [DELTA]
        reasons = re.findall(r"\(java[\w.]+: (.+)\)$", output, re.MULTILINE) or ["not found"]
        return SparkUnavailable(
            f"cannot fetch the JARs of {', '.join(missing)}: {reasons[0]}. "
            "Needed once: a Maven repository in reach (for a mirror, set spark.'spark.jars.ivySettings'). "
            "Without a network: copy a filled Ivy folder and name it in spark.'spark.jars.ivy', "
            "or list the JAR files in spark.'spark.jars'."
        )
    thrown = re.findall(r'^(?:Exception in thread "\S+" )?[\w.$]+(?:Exception|Error): (.+)$', output, re.MULTILINE)
    return SparkUnavailable(f"Spark does not start: {(thrown or told.splitlines())[0]}")
