import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from silverfold.conf.errors import SparkUnavailable
from silverfold.conf.model import Settings
from silverfold.pipelines.spark.jars import fitting_delta
from silverfold.pipelines.spark.java import JvmOutput, check_java
from silverfold.pipelines.spark.session import (
    _await_server,
    _error_text,
    interrupt_jobs,
    own_session,
    start_spark,
    worker_python,
)
from silverfold.transforms.changes import at_hand, few_at_hand
from silverfold.transforms.spark_errors import named_errors
from tests.support.polling import wait_until

START = textwrap.dedent("""
    import sys
    from silverfold.conf.errors import SparkUnavailable
    from silverfold.conf.model import Settings
    from silverfold.pipelines.spark.session import start_spark
    try:
        start_spark(Settings(warehouse="w", spark=dict(argument.split("=", 1) for argument in sys.argv[1:])), app="t")
    except SparkUnavailable as error:
        print(error)
    """)


def start_elsewhere(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, "spark.master=local[1]", *options],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def java_printing(folder: Path, text: str) -> dict[str, str]:
    folder.mkdir()
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho {shlex.quote(text)} >&2\n")
    java.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("shown", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19'])
def test_java_17_and_21_pass(tmp_path, shown):
    check_java(java_printing(tmp_path / "bin", shown))


@pytest.mark.parametrize(
    ("shown", "found"),
    [('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_402"', "8"), ('java version "25"', "25")],
)
def test_another_java_is_refused_by_its_version(tmp_path, shown, found):
    with pytest.raises(SparkUnavailable) as refused:
        check_java(java_printing(tmp_path / "bin", shown))
    assert str(refused.value) == (
        f"{tmp_path}/bin/java is Java {found}, which Spark 4.2 does not run on. "
        "Install Java 17 or 21 and set JAVA_HOME to it, or put its java first on the PATH."
    )


def test_a_java_that_tells_no_version_is_refused(tmp_path):
    with pytest.raises(SparkUnavailable, match=r"does not tell its version\. Install Java 17 or 21"):
        check_java(java_printing(tmp_path / "bin", "no"))


def test_a_java_that_does_not_run_is_refused(tmp_path):
    environ = java_printing(tmp_path / "bin", "")
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF")
    with pytest.raises(SparkUnavailable, match=r"bin/java does not run: .* Install Java 17 or 21"):
        check_java(environ)


def test_no_java_at_all_says_to_install_one(tmp_path):
    (tmp_path / "empty").mkdir()
    done = start_elsewhere(PATH=str(tmp_path / "empty"), JAVA_HOME="")
    assert done.stdout == (
        "Spark needs Java, and there is no java on the PATH. "
        "Install Java 17 or 21 and set JAVA_HOME to it, or put its java first on the PATH.\n"
    )


def test_java_home_wins_over_the_path_and_must_hold_a_java(tmp_path):
    environ = {**java_printing(tmp_path / "bin", 'version "17"'), "JAVA_HOME": str(tmp_path / "gone")}
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME is .*/gone, but there is no .*/gone/bin/java\. Install"):
        check_java(environ)


@pytest.mark.spark
def test_jars_that_cannot_be_fetched_are_named_with_what_to_do(tmp_path):
    nowhere = tmp_path / "ivysettings.xml"
    nowhere.write_text(
        '<ivysettings><settings defaultResolver="nowhere"/><resolvers>'
        '<ibiblio name="nowhere" m2compatible="true" root="http://127.0.0.1:1/"/></resolvers></ivysettings>'
    )
    done = start_elsewhere(f"spark.jars.ivy={tmp_path}/ivy", f"spark.jars.ivySettings={nowhere}")
    group, artifact, version = fitting_delta().split(":")
    assert done.stdout == (
        f"cannot fetch the JARs of {group}#{artifact};{version}: Connection refused. "
        "Needed once: a Maven repository in reach (for a mirror, set spark.'spark.jars.ivySettings'). "
        "Without a network: copy a filled Ivy folder and name it in spark.'spark.jars.ivy', "
        "or list the JAR files in spark.'spark.jars'.\n"
    )
    assert done.stderr == ""


@pytest.mark.nightly
@pytest.mark.spark
def test_an_option_that_spark_refuses_is_told_without_javas_noise():
    done = start_elsewhere("spark.master=local[many]")
    assert done.stdout == "Spark does not start: Could not parse Master URL: 'local[many]'\n"
    assert done.stderr == ""


def test_what_a_running_jvm_prints_is_passed_on_but_for_chatter(capsys):
    output = JvmOutput()
    with output.open() as pipe:
        write_end = os.dup(pipe)
    os.write(write_end, b"Picked up an option\n")
    wait_until(lambda: output.text() != "", "the first line")
    output.pass_on()
    os.write(write_end, b"Deleted 0 files and directories in a total of 1 directories.\nsomething else\n")
    os.close(write_end)
    output.text()  # until all is read
    assert capsys.readouterr().err == "something else\n"


def test_an_interrupt_while_the_jvm_starts_leaves_none_behind(tmp_path):
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 600\n")
    submit.chmod(0o755)
    environ = {**os.environ, "SPARK_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", START], env=environ, stderr=subprocess.PIPE) as starting:
        wait_until(lambda: (tmp_path / "pid").exists() or starting.poll() is not None, "the start of the JVM")
        assert starting.poll() is None
        starting.send_signal(signal.SIGINT)
        errors = starting.communicate(timeout=60)[1]
    assert b"KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_an_interrupt_does_is_left_to_the_process(spark):
    handler = signal.getsignal(signal.SIGINT)
    assert not getattr(handler, "__module__", "").startswith("pyspark")


def test_a_running_session_is_not_changed_and_lends_its_options(spark, monkeypatch):
    running = spark.newSession()
    monkeypatch.setattr(SparkSession, "active", lambda: running)
    running.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    running.conf.set("spark.sql.shuffle.partitions", "7")
    ours = start_spark(Settings(warehouse="w", spark={"spark.sql.parquet.compression.codec": "zstd"}), app="another")
    assert running.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
    assert ours.conf.get("spark.sql.shuffle.partitions") == "7"
    assert ours.conf.get("spark.sql.parquet.compression.codec") == "zstd"


def test_a_session_of_ones_own_has_what_was_set_later_and_keeps_its_own_to_itself(spark):
    platform = spark.newSession()
    platform.conf.set("spark.sql.shuffle.partitions", "7")
    own = own_session(platform)
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert own.conf.get("spark.sql.shuffle.partitions") == "7"
    assert platform.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize("text", ["${x}", "${env:HOME}", "${spark:spark.app.name}", "$x ${"])
def test_what_looks_like_a_variable_stays_a_text_on_a_session_of_our_own(spark, text):
    platform = spark.newSession()
    platform.conf.set("spark.sql.variable.substitute", "true")
    assert own_session(platform).sql(f"SELECT '{text}' AS text").first()["text"] == text


@pytest.mark.nightly
def test_what_spark_submit_was_told_goes_before_the_settings(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "from silverfold.conf.load import load_settings\nfrom silverfold.pipelines.spark.session import start_spark\n"
        "conf = start_spark(load_settings(None, 'local', {}), app='x').sparkContext.getConf()\n"
        "print(*map(conf.get, ['spark.master', 'spark.sql.shuffle.partitions', 'spark.sql.extensions']))\n"
    )
    arguments = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=7", "--packages", fitting_delta()]
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), *arguments, str(job)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "local[1] 7 io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.spark
def test_a_secret_option_is_known_to_spark_and_not_on_its_command_line(tmp_path):
    key = tmp_path / "key"
    key.write_text("hunter2\n")
    options = f'{{"spark.master": "local[1]", "spark.key": {{"file": "{key}"}}, "spark.open": "seen"}}'
    job = f"""
        from pathlib import Path
        from pyspark import SparkContext
        from silverfold.conf.model import Settings
        from silverfold.pipelines.spark.session import start_spark
        session = start_spark(Settings.model_validate({{"warehouse": "w", "spark": {options}}}), app="t")
        line = Path(f"/proc/{{SparkContext._gateway.proc.pid}}/cmdline").read_text()
        print(session.conf.get("spark.key"), "hunter2" in line, "seen" in line)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(job)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "hunter2 False True\n"


def test_times_of_any_year_are_for_other_readers_what_they_were(spark, tmp_path):
    platform = spark.newSession()
    for name, value in (("outputTimestampType", "INT96"), ("datetimeRebaseModeInWrite", "LEGACY")):
        platform.conf.set(f"spark.sql.parquet.{name}", value)
    years = ["0001-01-01T00:00:00", "1600-01-01T00:00:00", "1970-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999"]
    written = own_session(platform).sql(
        f"SELECT timestamp(year) AS at FROM (SELECT explode(array{tuple(years)}) AS year)"
    )
    written.coalesce(1).write.format("delta").save(str(tmp_path / "times"))
    found = DeltaTable(tmp_path / "times").to_pyarrow_table().column("at")
    assert [time.isoformat() for time in sorted(found.to_pylist())] == [f"{year}+00:00" for year in years]


def test_a_master_that_is_not_there_is_told_at_once():
    done = start_elsewhere("spark.master=spark://127.0.0.1:1,127.0.0.1:2")
    assert done.stdout == "no Spark master answers at spark://127.0.0.1:1,127.0.0.1:2\n"


def test_a_connect_server_that_is_not_one_is_told():
    done = start_elsewhere("spark.remote=spark.example")
    assert done.stdout.startswith("no Spark Connect server at spark.example: [INVALID_CONNECT_URL] ")


def test_a_connect_server_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr("silverfold.pipelines.spark.session._ANSWERS_WITHIN", 0.1)
    with pytest.raises(SparkUnavailable, match=r"no Spark Connect server answers at sc://127\.0\.0\.1:1$"):
        _await_server("sc://127.0.0.1:1")


def test_times_are_utc_and_large_frames_make_small_batches(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "67108864"


def test_the_jvm_is_in_utc_whatever_zone_this_process_is_in(spark):
    """Delta replays a table's log behind each commit elsewhere."""
    zone = spark.sparkContext._jvm.java.util.TimeZone.getDefault().getID()
    assert zone == "UTC"


def test_workers_run_the_same_python_and_see_the_packages(spark):
    def where(batches):
        import sys  # noqa: PLC0415 - runs in a worker

        import pyarrow as pa  # noqa: PLC0415 - as above

        import silverfold.conf.errors  # noqa: PLC0415 - as above

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "conf": [silverfold.conf.errors.__file__]})

    import silverfold.conf.errors  # noqa: PLC0415 - compared with the worker's

    found = spark.range(1).mapInArrow(where, "python string, conf string").collect()
    assert [tuple(row) for row in found] == [(sys.executable, silverfold.conf.errors.__file__)]


def test_workers_have_the_python_that_settings_name_else_the_environments_else_ours():
    named, set_up = {"spark.pyspark.python": "./env/bin/python"}, {"PYSPARK_PYTHON": "/opt/python"}
    assert worker_python(named, set_up) == "./env/bin/python"
    assert worker_python({}, set_up) == "/opt/python"
    assert worker_python({}, {}) == sys.executable


def test_rows_go_to_spark_whatever_bound_of_batches_the_callers_session_has(spark):
    callers = spark.newSession()
    callers.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    assert own_session(callers).conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "7"
    callers.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    assert at_hand(own_session(callers).range(2)).count() == 2
    assert few_at_hand(callers.range(2), 2) is None  # pyspark cannot cut them into batches


def test_a_merge_works_on_a_table_with_deletion_vectors(spark, warehouse):
    table = f"delta.`{warehouse}/t`"
    spark.sql(
        f"CREATE TABLE {table} (k BIGINT, v STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    spark.sql("SELECT * FROM VALUES (2, 'zwei'), (3, NULL), (4, 'vier') AS s(k, v)").createOrReplaceTempView("changed")
    spark.sql(
        f"MERGE INTO {table} t USING changed s ON t.k = s.k "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    rows = spark.sql(f"SELECT k, v FROM {table} ORDER BY k").collect()
    assert [tuple(row) for row in rows] == [(1, "one"), (2, "zwei"), (4, "vier")]


def test_py4j_prints_no_traceback_of_what_is_raised_too(spark, caplog):
    client = spark.sparkContext._gateway._gateway_client

    def interrupted() -> None:
        connection = client._create_new_connection()  # this thread's
        connection.socket.shutdown(socket.SHUT_RDWR)
        connection.shutdown_socket(1, 2)  # which py4j does on Ctrl-C

    thread = threading.Thread(target=interrupted)
    thread.start()
    thread.join()
    assert caplog.records == []


def test_an_error_of_a_jvm_that_is_gone_has_a_text():
    class Unasked(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "refused")

    assert (_error_text(Unasked()), _error_text(ValueError("so"))) == ("its JVM has ended", "so")


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # PySpark's own, where it was reading just then
def test_an_interrupt_ends_a_query_whose_result_is_waited_for(spark: SparkSession):
    """`toArrow` waits for its job whatever is raised in it, for as long as that runs."""
    began = signal.signal(signal.SIGINT, interrupt_jobs)
    tracker = spark.sparkContext.statusTracker()

    def ask() -> None:
        wait_until(lambda: len(tracker.getActiveJobsIds()) > 0, "the query")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt), named_errors("t"):
            spark.sql("SELECT count_if(a.id * b.id % 7 = 3) FROM range(1000000000) a, range(1000000000) b").toArrow()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, began)
    wait_until(lambda: len(tracker.getActiveJobsIds()) == 0, "its end")
