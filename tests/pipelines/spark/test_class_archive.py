"""Where the archive of Spark's classes is, when it is used, and that it is made of a Spark that starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import SparkUnavailable
from silverfold.pipelines.spark.class_archive import archive_path, making_archive, using_archive
from silverfold.pipelines.spark.jars import CLASS_PATH, FETCHED, fitting_delta, jar_options
from silverfold.pipelines.spark.s3 import hadoop_aws

JVM = "spark.driver.extraJavaOptions"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "spark.jsa"
    made.write_bytes(b"")
    return made


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    """An Ivy folder that has all JARs."""
    (tmp_path / "jars").mkdir()
    for name in FETCHED:
        with ZipFile(tmp_path / "jars" / name, "w") as jar:
            jar.writestr("a", "b")
    return tmp_path


def test_each_java_and_each_class_path_has_an_archive_of_its_own(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    kinds = [archive_path(options, java, home) for options in ({}, {CLASS_PATH: "a.jar"}) for java in ("17", "21")]
    assert len({*kinds}) == 4
    assert {kind.parent for kind in kinds} == {tmp_path / "silverfold"}


def test_an_archive_that_is_there_is_used_beside_other_options(archive: Path) -> None:
    used = using_archive({JVM: "-Xint"}, archive)
    assert used == {JVM: f"-Xint -XX:SharedArchiveFile={archive} -Xlog:cds*=off"}


def test_no_archive_is_used_that_is_not_there_or_beside_one_that_the_options_name(archive: Path) -> None:
    assert using_archive({}, archive.with_name("other.jsa")) == {}
    assert using_archive({JVM: "-XX:SharedArchiveFile=mine.jsa"}, archive) == {}
    assert using_archive(making_archive({}, archive), archive) == {}


@pytest.mark.skipif(not pyspark.__version__.startswith("4.2"), reason="another Spark has its JARs from Ivy")
def test_jars_that_were_fetched_are_on_the_class_path(fetched: Path) -> None:
    options = {"spark.master": "local[2]", "spark.jars.ivy": str(fetched), CLASS_PATH: "mine.jar"}
    first, *others = jar_options(options)[CLASS_PATH].split(":")
    assert (first, [Path(other).name for other in others]) == ("mine.jar", list(FETCHED))


@pytest.mark.parametrize("cut", FETCHED[3:5])
def test_jars_of_which_one_is_cut_short_are_fetched_again(fetched: Path, cut: str) -> None:
    (fetched / "jars" / cut).write_bytes(b"PK")
    assert CLASS_PATH not in jar_options({"spark.master": "local[2]", "spark.jars.ivy": str(fetched)})


def test_each_spark_has_the_delta_that_was_compiled_for_it() -> None:
    assert fitting_delta("4.0.1") == "io.delta:delta-spark_2.13:4.0.0"
    assert fitting_delta("4.2.0") == "io.delta:delta-spark_4.2_2.13:4.4.0"
    with pytest.raises(SparkUnavailable, match=r"no Delta is known to fit Spark 3.5.6: use Spark 4.0, 4.1, 4.2, or"):
        fitting_delta("3.5.6")


def test_each_spark_has_the_client_for_s3_of_its_own_hadoop() -> None:
    sparks = ("4.0.0", "4.1.1", "4.2.0", "5.0.0")
    assert [hadoop_aws(spark).rpartition(":")[2] for spark in sparks] == ["3.4.1", "3.4.2", "3.5.0", "3.5.0"]


def test_executors_elsewhere_get_the_jars_from_the_driver(fetched: Path) -> None:
    options = {"spark.master": "spark://cluster:7077", "spark.jars.ivy": str(fetched)}
    assert "io.delta:delta-spark" in jar_options(options)["spark.jars.packages"]


@pytest.mark.spark
@pytest.mark.nightly
def test_a_machine_that_is_prepared_has_an_archive_with_which_spark_starts(tmp_path: Path) -> None:
    abandoned = tmp_path / "silverfold" / "new-killed"
    abandoned.mkdir(parents=True)
    os.utime(abandoned, (0, 0))
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        [sys.executable, "-m", "silverfold.jobs.cli", "prepare"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    (made,) = (tmp_path / "silverfold").iterdir()
    assert done.stdout.startswith(f"{made}: ")
    assert made.stat().st_size > 50 << 20


@pytest.mark.skipif(not pyspark.__version__.startswith("4.2."), reason="the files for other versions are not listed")
def test_ivy_has_fetched_just_what_is_named(spark: SparkSession) -> None:
    assert CLASS_PATH in jar_options({"spark.master": "local[2]"})
