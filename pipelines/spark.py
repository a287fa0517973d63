"""The only place where a Spark session is built.

Laws: times are UTC; every session can read and write Delta; the Delta JARs fit the installed Spark; a machine where
Spark cannot start gets one error that says what to do, and none of Java's own noise.

Options come in two layers, the later wins: `SESSION` (what this project needs anywhere) and the ``spark`` table of the
settings. Where a session is already running (a notebook, a Databricks job) its JVM is used, by a session of our own
that starts with the caller's options; ours are set there as far as a running session may change them, and the caller's
session stays as it was. So it is with a Spark Connect server, named by the option ``spark.remote``: Delta and this
project's packages are the server's matter. What spark-submit was told goes before both layers, its master above all.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn, cast

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession, is_remote

from conf.errors import ApplyError, SparkUnavailable
from pipelines import s3
from pipelines.class_archive import JVM_OPTIONS, archive_path, using_archive
from pipelines.jars import DELTA, jar_options
from pipelines.java import JvmOutput, check_java
from pipelines.workers import await_workers, ship_packages

if TYPE_CHECKING:
    from conf.model import Settings

EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # INT96, the default, has nanoseconds: other readers take the year 9999 for 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Spark would expand ``${name}`` anywhere in the text of a statement, literals included.
    "spark.sql.variable.substitute": "false",
}
"""Without these, values would not be written as they are. `own_session` sets them whatever the caller's session has."""

_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""Without a bound (0 or less) pyspark cannot hand over rows by Arrow."""

SESSION = {
    **EXACT,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Frames may be megabytes each: 10,000 of them in one Arrow batch would not fit a Python worker.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A fold keeps one row per key at hand; Spark would give up hashing and sort at 128 keys already.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
    # A cut compiles some 60 pieces of code, each table others: the default, 100, forgets them from cut to cut.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # PySpark would ask the JVM six times more at each column function, to name the caller's line in errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


_TOLD_TWICE = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.delta.commands.MergeIntoCommand",
    "org.apache.spark.sql.delta.files.DeltaFileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""Loggers by which a failed query prints its stack several times, though it is raised too."""

_TOLD_FOR_NOTHING = ("org.apache.spark.sql.delta.DeltaParquetFileFormat",)
"""Says at each read of a table with column mapping that a filter of Delta's own is not pushed down to its files."""

_RAISED_TOO = (
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
)
"""What py4j says above the traceback of an error that it raises."""

ENDED = "Spark has ended before its work was done. Start again: what was not committed is done anew"
"""What is said of it."""

_IN_UTC = "-Duser.timezone=UTC"
"""In any other zone Delta replays a table's log behind each commit, lest it has written times before 1883 wrong: that
takes 1 to 7 % of a small MERGE."""

_ANSWERS_WITHIN = 30.0
"""Seconds for a Spark Connect server, or a master, to answer at all."""


def start_spark(settings: Settings, *, app: str) -> SparkSession:
    """Return a session beside the one that runs, or start one: 7 to 10 seconds, more when JARs must be fetched first.

    A session this call started lives as long as the process, or until its ``stop``. One that was already there keeps
    its options. With ``spark.remote`` (``sc://host:port``) it is one of the Spark Connect server there, and no JVM is
    started here.

    Args:
        settings: Its ``spark`` table overrides every option set here, name by name.
        app: Name of the application, as Spark's own pages show it.

    Raises:
        SparkUnavailable: No Java, a Java that Spark does not run on, JARs that cannot be fetched, an option
            that Spark refuses, no Connect server in reach, or workers that do not come or lack something. The message
            says what to do.
        ConfigError: A secret of the ``spark`` table is not where its reference says.
    """
    options, secrets = wanted(settings), {**s3.spark_secrets(settings), **settings.spark_secrets()}
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # else each query error is also printed, as JSON
    running = _running()
    if running is not None:
        session = _adapted(own_session(running), {**options, **secrets})
        await_workers(session)
        return session
    if "spark.remote" in settings.spark:
        session = _connect({**options, **secrets})
    else:
        session = _start({**options, **jar_options(options), "spark.app.name": app}, secrets)
    try:
        ship_packages(session)
        await_workers(session)
    except BaseException:
        stop_spark(session)  # over Spark Connect, this process would not end
        raise
    return session


def _running() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def wanted(settings: Settings) -> dict[str, str]:
    """Return the options of Spark that are no secrets, without those that bring Delta's JARs."""
    options = {**SESSION, **settings.spark_options}
    return {**options, **s3.spark_options(settings, options)}


def worker_python(options: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return which Python executors start: what settings or the environment say, else the one that runs here."""
    return options.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable


def own_session(session: SparkSession) -> SparkSession:
    """Return another session with the same options but for `EXACT`. What is set on it, and its views, are its own.

    Over Spark Connect, views that are there already come along.
    """
    if is_remote():  # where newSession is not
        ours: SparkSession = cast(Any, session).cloneSession()
        _adapted(ours, EXACT)
    else:  # a new session has the options its JVM was started with; a platform's session may have got others later
        ours = _adapted(session.newSession(), {**session.conf.getAll, **EXACT})
    if int(ours.conf.get(_ROWS_AT_ONCE, "1") or 1) <= 0:
        _adapted(ours, {_ROWS_AT_ONCE: "10000"})
    return ours


def close_session(session: SparkSession) -> None:
    """End a session of `own_session`. Of a JVM in this process there is nothing to be ended.

    A Connect server keeps the session else, and its connection keeps this process from ending.
    """
    if is_remote():
        client = cast(Any, session).client  # ``stop`` fails: a clone lacks what it looks at
        client.release_session()
        client.close()


def stop_spark(session: SparkSession) -> None:
    """Stop a session that `start_spark` started, and wait until its JVM is gone: nothing of it writes any more.

    A Connect server's JVM goes on without the session.
    """
    if is_remote():
        session.stop()
        return
    gateway = SparkContext._gateway
    session.sparkContext.setLogLevel("OFF")  # tasks that still run lose what they work on, and would say so
    session.stop()
    if gateway is None or gateway.proc is None:  # spark-submit's JVM ends with this process
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which it takes as the word to end
    gateway.proc.wait()


def interrupt_jobs(_number: int, _frame: object) -> NoReturn:
    """End the jobs that run, whose results some calls wait for come what may; then interrupt as Python does."""
    context = SparkContext._active_spark_context
    if context is not None:
        with suppress(Py4JError, OSError):  # it has ended
            context.cancelAllJobs()
    raise KeyboardInterrupt


@contextmanager
def noticing_its_end() -> Iterator[None]:
    """Say of what is raised inside the block because Spark has ended that this is why.

    A lack of memory, or somebody, may end the JVM before this process.

    Raises:
        SparkUnavailable: Spark was started in this process, and has ended without it.
    """
    try:
        yield
    except (ApplyError, Py4JError, OSError) as error:
        if has_ended():
            raise SparkUnavailable(ENDED) from error
        raise


def has_ended() -> bool:
    """Tell whether Spark was started in this process, and has ended without it."""
    context = SparkContext._active_spark_context
    try:
        return context is not None and bool(cast(Any, context)._jsc.sc().isStopped())
    except (Py4JError, OSError):  # nobody answers
        return True


def _adapted(session: SparkSession, options: Mapping[str, str]) -> SparkSession:
    """Set those options on a running session that it may change and has otherwise."""
    have = session.conf.getAll
    for name, value in options.items():
        if have.get(name) != value and session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _connect(options: Mapping[str, str]) -> SparkSession:
    """Open a session on a Spark Connect server."""
    remote = options["spark.remote"]
    try:
        _await_server(remote)
        return _adapted(SparkSession.builder.remote(remote).getOrCreate(), options)
    except ImportError:
        raise SparkUnavailable("spark.remote needs packages that are not here: install silverfold[connect]") from None
    except PySparkException as error:
        raise SparkUnavailable(f"no Spark Connect server at {_server(remote)}: {str(error).splitlines()[0]}") from None


def _await_server(remote: str) -> None:
    """Wait until the server answers: Spark itself would try for ten minutes before it says a word."""
    import grpc  # noqa: PLC0415 - comes with the extra
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - as above

    with DefaultChannelBuilder(remote).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWERS_WITHIN)
        except grpc.FutureTimeoutError:
            raise SparkUnavailable(f"no Spark Connect server answers at {_server(remote)}") from None


def _server(remote: str) -> str:
    """Return an address without what may stand behind it: a token."""
    return remote.partition(";")[0]


def _start(options: Mapping[str, str], secrets: Mapping[str, str]) -> SparkSession:
    """Start a JVM and a session in it, holding back what the JVM prints until the session stands.

    Args:
        secrets: Options that only the running JVM is told: anybody can read its command line.
    """
    # pyspark itself looks at the variable alone, and else for "python3" on the PATH, which lacks our packages.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, and set the variable
    os.environ["PYSPARK_PYTHON"] = worker_python({} if submitted else options, os.environ)
    if not submitted:
        _await_master(options.get("spark.master", ""))
        java = check_java(os.environ)
        options = {**options, JVM_OPTIONS: " ".join([_IN_UTC, options.get(JVM_OPTIONS, "")])}
        options = {**options, **using_archive(options, archive_path(options, java, os.environ))}
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.addFilter(_is_not_raised_too)
    spark_conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    output = JvmOutput()
    try:
        with output.open() as pipe:
            # in a session of its own: a signal to all of a service's processes lets this one end the JVM in order
            gateway = launch_gateway(spark_conf, {"stdout": pipe, "stderr": pipe, "start_new_session": True})
    except PySparkRuntimeError as error:
        raise _explained(output.text(), str(error)) from error
    except BaseException as interrupt:
        _end_half_started(interrupt)
        raise
    handler = signal.getsignal(signal.SIGINT)
    spark_conf.setAll(list(secrets.items()))
    try:
        SparkContext(conf=_over_submitted(spark_conf, gateway) if submitted else spark_conf, gateway=gateway)
        if threading.current_thread() is threading.main_thread():  # Spark has taken the signal for itself
            signal.signal(signal.SIGINT, interrupt_jobs if handler is signal.default_int_handler else handler)
        session = SparkSession.builder.getOrCreate()
        logging4j = gateway.jvm.org.apache.logging.log4j
        for name in _TOLD_TWICE + _TOLD_FOR_NOTHING:
            logging4j.core.config.Configurator.setLevel(name, logging4j.Level.OFF)
    except (PySparkException, Py4JError, ValueError, OSError) as error:
        told = _told_by(error)
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # the next start is not to ask this one
        raise _explained(output.text(), told) from None
    output.pass_on()
    return session


def _await_master(address: str) -> None:
    """Look whether somebody listens at a standalone master's address: Spark would try for a minute, and not say which.

    Args:
        address: ``spark://host:port``, or several after commas; of any other master nothing is looked at.
    """
    if not address.startswith("spark://"):
        return
    for place in address.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN):
            return
    raise SparkUnavailable(f"no Spark master answers at {address}")


def _over_submitted(ours: SparkConf, gateway: JavaGateway) -> SparkConf:
    """Return what spark-submit was told, its master among it, and ours where it was told nothing."""
    told = SparkConf(_jvm=gateway.jvm)
    for name, value in ours.getAll():
        told.setIfMissing(name, value)
    return told


def _told_by(error: Exception) -> str:
    """Return the text of an error that Spark may have raised, for which its JVM is asked."""
    try:
        return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):
        return "its JVM has ended"


def _is_not_raised_too(record: logging.LogRecord) -> bool:
    """Keep back the tracebacks that py4j prints when it is interrupted or its JVM ends, and then raises too."""
    return record.msg not in _RAISED_TOO


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
