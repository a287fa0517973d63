"""The only module that builds Spark sessions.

Times are UTC; every session can read and write Delta; the Delta JARs fit the installed Spark. On a machine where Spark
cannot start, the user gets one error with advice, and no output of Java.

Options come in two layers, the later wins: `SESSION` (required by this project) and the ``spark`` table of the
settings. If a session is already running (a notebook, a Databricks job), its JVM is used through a separate session
that starts with the caller's options. Ours are set there as far as a running session may change them, and the caller's
session is unchanged. The same holds for a Spark Connect server, named by the option ``spark.remote``: the server must
have Delta and this project's packages. Options of spark-submit precede both layers, its master above all.
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

from silverfold.conf.errors import ApplyError, SparkUnavailable
from silverfold.pipelines.spark import s3
from silverfold.pipelines.spark.class_archive import JVM_OPTIONS, archive_path, using_archive
from silverfold.pipelines.spark.jars import fitting_delta, jar_options
from silverfold.pipelines.spark.java import JvmOutput, check_java
from silverfold.pipelines.spark.running import active_session, check_delta, check_session, refusal, set_option
from silverfold.pipelines.spark.workers import await_workers, ship_packages

if TYPE_CHECKING:
    from silverfold.conf.model import Settings

EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # INT96, the default, has nanoseconds: other readers take the year 9999 for 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Spark would expand ``${name}`` anywhere in the text of a statement, literals included.
    "spark.sql.variable.substitute": "false",
}
"""Required to write values exactly. `own_session` sets them whatever the caller's session has."""

_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""Without a limit (0 or less) pyspark cannot transfer rows as Arrow."""

SESSION = {
    **EXACT,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Frames may be megabytes each: 10,000 of them in one Arrow batch would not fit a Python worker.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A fold holds one row per key; Spark would switch from hashing to sorting at only 128 keys.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
    # A cut compiles some 60 pieces of code, different for each table: with the default, 100, each cut recompiles them.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # PySpark would query the JVM six more times at each column function, to name the caller's line in errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


_DUPLICATE_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.delta.commands.MergeIntoCommand",
    "org.apache.spark.sql.delta.files.DeltaFileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""Loggers that print the stack of a failed query several times, although the error is raised too."""

_NOISY_LOGGERS = ("org.apache.spark.sql.delta.DeltaParquetFileFormat",)
"""Logs at each read of a table with column mapping that one of Delta's own filters is not pushed down."""

_RAISED_MESSAGES = (
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
)
"""Log messages of py4j above the traceback of an error that it also raises."""

ENDED = "Spark has ended before its work was done. Start again: what was not committed is done anew"
"""Error message for that."""

_IN_UTC = "-Duser.timezone=UTC"
"""In any other zone Delta replays a table's log after each commit, in case it wrote times before 1883 wrong: 1 to 7 %
of a small MERGE."""

_ANSWERS_WITHIN = 30.0
"""Seconds to wait for any answer of a Spark Connect server or a master."""


def start_spark(settings: Settings, *, app: str, running: SparkSession | None = None) -> SparkSession:
    """Return a separate session in the running JVM, or start one: 7 to 10 seconds, more if JARs must be fetched.

    A session this call started lives as long as the process, or until its ``stop``. One that was already there keeps
    its options. With ``spark.remote`` (``sc://host:port``) the session is on that Spark Connect server, and no JVM is
    started here.

    Args:
        settings: Its ``spark`` table overrides every option set here, name by name.
        app: Name of the application, as Spark's own pages show it.
        running: The session of a caller, whose logs of Spark's errors stay as they are; by default the active one.

    Raises:
        SparkUnavailable: No Java, a Java that Spark does not run on, JARs that cannot be fetched, an option that Spark
            refuses, a running session that lacks Delta or refuses what builds need (`running`), no reachable Connect
            server, or workers that do not come or lack something. The message gives advice.
        ConfigError: A secret of the ``spark`` table is not where its reference says.
    """
    options, secrets = public_options(settings), {**s3.spark_secrets(settings), **settings.spark_secrets()}
    if running is None:
        running = active_session()
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)  # else each query error is also printed, as JSON
    if running is not None:
        check_delta(running)
        with refusal("a session of our own"):
            session = _set_options(own_session(running), {**options, **secrets})
        check_session(session)
        await_workers(session)
        return session
    if "spark.remote" in settings.spark:
        session = _connect({**options, **secrets})
    else:
        session = _start({**options, **jar_options(options), "spark.app.name": app}, secrets)
    try:
        if is_remote():
            check_delta(session)
            check_session(session)
        ship_packages(session)
        await_workers(session)
    except BaseException:
        stop_spark(session)  # over Spark Connect, this process would not end
        raise
    return session


def public_options(settings: Settings) -> dict[str, str]:
    """Return the options of Spark that are not secret, without those for Delta's JARs."""
    options = {**SESSION, **settings.spark_options}
    return {**options, **s3.spark_options(settings, options)}


def worker_python(options: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the Python that executors start: from settings or the environment, else the current one."""
    return options.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON") or sys.executable


def own_session(session: SparkSession) -> SparkSession:
    """Return another session with the same options except `EXACT`. Options set on it, and its views, are its own.

    Over Spark Connect, existing views are copied; not with the client of Spark 4.0.
    """
    if is_remote():  # newSession does not exist there
        ours: SparkSession = cast(Any, session).cloneSession() if hasattr(session, "cloneSession") else _beside(session)
        _set_options(ours, EXACT)
    else:  # a new session has its JVM's initial options; a platform's session may have got others later
        ours = _set_options(session.newSession(), {**session.conf.getAll, **EXACT})
    if int(ours.conf.get(_ROWS_AT_ONCE, "1") or 1) <= 0:
        _set_options(ours, {_ROWS_AT_ONCE: "10000"})
    return ours


def _beside(session: SparkSession) -> SparkSession:
    """Return a new session of the same Connect server, with its options and our packages: Spark 4.0 clones none."""
    theirs = cast(Any, session)
    ours: SparkSession = type(theirs)(connection=theirs.client._builder)
    ship_packages(ours)
    return _set_options(ours, theirs.conf.getAll)


def close_session(session: SparkSession) -> None:
    """Close a session of `own_session`. A no-op for a JVM in this process.

    Otherwise a Connect server retains the session, and its connection keeps this process from ending.
    """
    if is_remote():
        client = cast(Any, session).client  # ``stop`` fails: a clone lacks an attribute that it reads
        client.release_session()
        client.close()


def stop_spark(session: SparkSession) -> None:
    """Stop a session of `start_spark`, and wait until its JVM is gone and can no longer write.

    A Connect server's JVM continues without the session.
    """
    if is_remote():
        session.stop()
        return
    gateway = SparkContext._gateway
    session.sparkContext.setLogLevel("OFF")  # running tasks lose their data, and would log it
    session.stop()
    if gateway is None or gateway.proc is None:  # spark-submit's JVM ends with this process
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # closing stdin ends the JVM
    gateway.proc.wait()


def interrupt_jobs(_number: int, _frame: object) -> NoReturn:
    """Cancel the running jobs, since some calls wait for results uninterruptibly; then interrupt as Python does."""
    context = SparkContext._active_spark_context
    if context is not None:
        with suppress(Py4JError, OSError):  # it has ended
            context.cancelAllJobs()
    raise KeyboardInterrupt


@contextmanager
def raising_if_ended() -> Iterator[None]:
    """Raise SparkUnavailable for errors inside the block if Spark has ended.

    A lack of memory, or a user, may end the JVM before this process.

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
    """Return whether Spark was started in this process, and has ended without it."""
    context = SparkContext._active_spark_context
    try:
        return context is not None and bool(cast(Any, context)._jsc.sc().isStopped())
    except (Py4JError, OSError):  # the JVM does not answer
        return True


def _set_options(session: SparkSession, options: Mapping[str, str]) -> SparkSession:
    """Set those options on a running session that are modifiable there and differ. Raises SparkUnavailable."""
    have = session.conf.getAll
    for name, value in options.items():
        if have.get(name) != value and session.conf.isModifiable(name):
            set_option(session, name, value)
    return session


def _connect(options: Mapping[str, str]) -> SparkSession:
    """Open a session on a Spark Connect server."""
    remote = options["spark.remote"]
    try:
        _await_server(remote)
        return _set_options(SparkSession.builder.remote(remote).getOrCreate(), options)
    except ImportError:
        raise SparkUnavailable("spark.remote needs packages that are not here: install silverfold[connect]") from None
    except PySparkException as error:
        raise SparkUnavailable(f"no Spark Connect server at {_server(remote)}: {str(error).splitlines()[0]}") from None


def _await_server(remote: str) -> None:
    """Wait until the server answers: Spark itself would try for ten minutes before it reports anything."""
    import grpc  # noqa: PLC0415 - comes with the extra
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - as above

    with DefaultChannelBuilder(remote).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWERS_WITHIN)
        except grpc.FutureTimeoutError:
            raise SparkUnavailable(f"no Spark Connect server answers at {_server(remote)}") from None


def _server(remote: str) -> str:
    """Return an address without its parameters, which may include a token."""
    return remote.partition(";")[0]


def _start(options: Mapping[str, str], secrets: Mapping[str, str]) -> SparkSession:
    """Start a JVM and a session in it, withholding the JVM's output until the session has started.

    Args:
        secrets: Options passed only to the running JVM: anybody can read its command line.
    """
    # pyspark itself uses the variable alone, or else "python3" on the PATH, which lacks our packages.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, and set the variable
    os.environ["PYSPARK_PYTHON"] = worker_python({} if submitted else options, os.environ)
    if not submitted:
        _await_master(options.get("spark.master", ""))
        java = check_java(os.environ)
        options = {**options, JVM_OPTIONS: " ".join([_IN_UTC, options.get(JVM_OPTIONS, "")])}
        options = {**options, **using_archive(options, archive_path(options, java, os.environ))}
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.addFilter(_is_not_raised)
    spark_conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    output = JvmOutput()
    try:
        with output.open() as pipe:
            # in a session of its own: a signal to all of a service's processes lets this one end the JVM in order
            gateway = launch_gateway(spark_conf, {"stdout": pipe, "stderr": pipe, "start_new_session": True})
    except PySparkRuntimeError as error:
        raise _startup_error(output.text(), str(error)) from error
    except BaseException as interrupt:
        _kill_started_jvm(interrupt)
        raise
    handler = signal.getsignal(signal.SIGINT)
    spark_conf.setAll(list(secrets.items()))
    try:
        SparkContext(conf=_merge_submitted(spark_conf, gateway) if submitted else spark_conf, gateway=gateway)
        if threading.current_thread() is threading.main_thread():  # Spark has replaced the signal handler
            signal.signal(signal.SIGINT, interrupt_jobs if handler is signal.default_int_handler else handler)
        session = SparkSession.builder.getOrCreate()
        logging4j = gateway.jvm.org.apache.logging.log4j
        for name in _DUPLICATE_LOGGERS + _NOISY_LOGGERS:
            logging4j.core.config.Configurator.setLevel(name, logging4j.Level.OFF)
    except (PySparkException, Py4JError, ValueError, OSError) as error:
        message = _error_text(error)
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # the next start must not use this one
        raise _startup_error(output.text(), message) from None
    output.pass_on()
    return session


def _await_master(address: str) -> None:
    """Check that a standalone master's address accepts connections: Spark would try for a minute, without naming it.

    Args:
        address: ``spark://host:port``, or several separated by commas; any other master is not checked.
    """
    if not address.startswith("spark://"):
        return
    for place in address.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN):
            return
    raise SparkUnavailable(f"no Spark master answers at {address}")


def _merge_submitted(ours: SparkConf, gateway: JavaGateway) -> SparkConf:
    """Return the options of spark-submit, its master among them, completed by ours."""
    merged = SparkConf(_jvm=gateway.jvm)
    for name, value in ours.getAll():
        merged.setIfMissing(name, value)
    return merged


def _error_text(error: Exception) -> str:
    """Return the text of an error, queried from the JVM if Spark raised it."""
    try:
        return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):
        return "its JVM has ended"


def _is_not_raised(record: logging.LogRecord) -> bool:
    """Filter out tracebacks that py4j logs when it is interrupted or its JVM ends, and also raises."""
    return record.msg not in _RAISED_MESSAGES


def _kill_started_jvm(interrupt: BaseException) -> None:
    """End the JVM whose start was interrupted: pyspark has it in a local variable only, and it never ends itself."""
    for frame, _line in walk_tb(interrupt.__traceback__):
        for process in (frame.f_locals.get("proc"), frame.f_locals.get("self")):  # started, or just being started
            if isinstance(process, Popen) and process.pid and process.returncode is None:
                process.kill()
                process.wait()


def _startup_error(output: str, message: str) -> SparkUnavailable:
    """Convert the output of a JVM that gave up into advice for the user."""
    if re.search("unresolved dependency|download failed", output):
        missing = re.findall(r"^\s*:: (\S+): not found$", output, re.MULTILINE) or [fitting_delta()]
        reasons = re.findall(r"\(java[\w.]+: (.+)\)$", output, re.MULTILINE) or ["not found"]
        return SparkUnavailable(
            f"cannot fetch the JARs of {', '.join(missing)}: {reasons[0]}. "
            "Needed once: a Maven repository in reach (for a mirror, set spark.'spark.jars.ivySettings'). "
            "Without a network: copy a filled Ivy folder and name it in spark.'spark.jars.ivy', "
            "or list the JAR files in spark.'spark.jars'."
        )
    thrown = re.findall(r'^(?:Exception in thread "\S+" )?[\w.$]+(?:Exception|Error): (.+)$', output, re.MULTILINE)
    return SparkUnavailable(f"Spark does not start: {(thrown or message.splitlines())[0]}")
