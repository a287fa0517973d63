"""What is said of an error of Spark's: which it is, and no value of anybody's rows."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from silverfold.conf.errors import ApplyError, StoreUnavailable
from silverfold.transforms.spark_errors import named_errors

AWAY = (
    "MetaException(message:Could not connect to meta store using any of the URIs provided. "
    "Most recent failure: Connection refused\n\tat org.apache.thrift.transport.TSocket.open(TSocket.java:255)"
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            'Job aborted: lost task: java.io.IOException: Cannot run program "python9": error=2, No such file',
            'Spark: its workers lack what a job needs: Cannot run program "python9"',
        ),
        (
            "PythonException: Traceback:\n  File x\nModuleNotFoundError: No module named 'connectors'\n",
            "Spark: its workers lack what a job needs: ModuleNotFoundError: No module named 'connectors'",
        ),
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            "lack what a job needs: Python in worker has different version: 3.12 than that in driver: 3.11",
        ),
        (
            "PySparkImportError: [UNSUPPORTED_PACKAGE_VERSION] PyArrow >= 18.0.0 must be installed; however, your "
            "version is 15.0.2.",
            "lack what a job needs: PyArrow >= 18.0.0 must be installed; however, your version is 15.0.2",
        ),
        (
            "PySparkImportError: [PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, it was not found.",
            "lack what a job needs: Pandas >= 2.2.0 must be installed; however, it was not found",
        ),
        ("boom\njava.lang.IllegalStateException: so\n\tat a.b.C", "Spark: java.lang.IllegalStateException: so"),
        (
            "boom\n: io.delta.exceptions.SomeException: [DELTA_SOME] so\n\tat a.b.C\n"
            "\tSuppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace",
            "Spark: io.delta.exceptions.SomeException: [DELTA_SOME] so",
        ),
        ("boom", "Spark: Py4JError"),
        ("a.b.Exception: [DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION] Operation", "build, and set it again"),
    ],
)
def test_an_error_is_named_by_what_tells_most(text: str, named: str):
    with pytest.raises(ApplyError) as raised, named_errors("quotes"):
        raise Py4JError(text)
    assert str(raised.value).endswith(named)


def test_an_error_in_python_code_is_named_without_what_it_says(monkeypatch: pytest.MonkeyPatch):
    traceback = (
        'Traceback (most recent call last):\n  File "/f.py", line 3, in f\nKeyError: 4711\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/f.py", line 4, in f\n    1 / 0\n    ~~^~~\n'
        "pyarrow.lib.ArrowInvalid: of 4711\nSmithError: no error but a name\n"
    )
    error = PySparkException(f"An exception was thrown from the Python worker:\n{traceback}")
    monkeypatch.setattr(error, "getCondition", lambda: "PYTHON_EXCEPTION")
    with pytest.raises(ApplyError, match=r"Spark: PYTHON_EXCEPTION: ArrowInvalid$"), named_errors("quotes"):
        raise error


def test_a_metastore_that_is_away_is_named_by_the_cause_that_spark_hides(monkeypatch: pytest.MonkeyPatch):
    error, hive, thrift = (PySparkException(text) for text in ("HiveException", "Unable to instantiate", AWAY))
    monkeypatch.setattr(error, "getCondition", lambda: "_LEGACY_ERROR_TEMP_3065")
    monkeypatch.setattr(error, "_cause", hive, raising=False)
    monkeypatch.setattr(hive, "_cause", thrift, raising=False)
    with pytest.raises(ApplyError) as raised, named_errors("quotes"):
        raise error
    cause = "Could not connect to meta store using any of the URIs provided. Most recent failure: Connection refused"
    assert str(raised.value) == f"quotes: Spark: {cause}"


def test_a_full_disk_is_a_store_that_cannot_be_written():
    text = "An error occurred\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n\tat a.b.C\n"
    with pytest.raises(StoreUnavailable, match=r"^quotes: .*No space left on device"), named_errors("quotes"):
        raise Py4JError(f"{text}Caused by: java.io.IOException: No space left on device\n\tat a.b.C")


def test_a_file_that_is_gone_is_a_store_that_cannot_be_read():
    text = "An error occurred\n: org.apache.spark.SparkException: [INTERNAL] Task failed\n\tat a.b.C\n"
    pattern = r"^quotes: Spark cannot read a file \(.*FileNotFoundException: File /w/1.parquet.*silverfold verify"
    with pytest.raises(StoreUnavailable, match=pattern), named_errors("quotes"):
        raise Py4JError(f"{text}Caused by: java.io.FileNotFoundException: File /w/1.parquet does not exist\n\tat a.b.C")


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch):
    error = PySparkException("no matter")
    monkeypatch.setattr(error, "getCondition", lambda: "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER")
    monkeypatch.setattr(error, "getMessageParameters", lambda: {"path": "file:///w/part-1.parquet"})
    pattern = r"^quotes: Spark cannot read file:///w/part-1.parquet \(FAILED_READ_FILE.*silverfold verify"
    with pytest.raises(StoreUnavailable, match=pattern), named_errors("quotes"):
        raise error
