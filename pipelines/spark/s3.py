"""Access of Spark to a warehouse on S3: delta-rs's ``storage_options``, translated for Hadoop's client."""

from __future__ import annotations

from collections.abc import Mapping

import pyspark

from silverfold.conf.model import Settings
from silverfold.pipelines.spark.jars import CLASS_PATH

_HADOOP = {"4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0"}
"""Versions of Hadoop, by the Spark that has it (``hadoop.version`` in its POM)."""

_HADOOP_NAMES: Mapping[str, str | None] = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "default_region": "endpoint.region",
    "region": "endpoint.region",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "allow_http": None,
    "virtual_hosted_style_request": None,
    "skip_signature": None,
}
"""Options to access S3: delta-rs's names, and those of Hadoop's client without ``fs.s3a.``, if it has them."""


def hadoop_aws(spark: str = pyspark.__version__) -> str:
    """Return the Maven coordinate of Hadoop's client for S3 that fits a version of Spark, by default the installed one.

    It must be of Spark's own version of Hadoop (Hadoop, "Troubleshooting S3A"). For a Spark that is not known, it is
    that of the newest.
    """
    return f"org.apache.hadoop:hadoop-aws:{_HADOOP.get('.'.join(spark.split('.')[:2]), _HADOOP['4.2'])}"


def access_options(storage_options: Mapping[str, str]) -> dict[str, str]:
    """Return the options to access S3, in lower case and without the prefix ``aws_``.

    delta-rs has further ones, which no other client knows.
    """
    options = {name.lower().removeprefix("aws_"): value for name, value in storage_options.items()}
    return {name: value for name, value in options.items() if name in _HADOOP_NAMES}


def spark_options(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Spark needs in addition to those given; none if the warehouse is not on S3.

    Among them is Hadoop's client for S3, fetched once: some 600 MB.
    """
    if not settings.is_on_s3:
        return {}
    packages = given.get("spark.jars.packages", "")
    options = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if "hadoop-aws" not in packages + given.get("spark.jars", "") + given.get(CLASS_PATH, ""):
        options["spark.jars.packages"] = ",".join(filter(None, [packages, hadoop_aws()]))
        # older than Spark's own, which it would hide
        options["spark.jars.excludes"] = ",".join(filter(None, [given.get("spark.jars.excludes"), "org.slf4j:*"]))
    return options


def spark_secrets(settings: Settings) -> dict[str, str]:
    """Return the options, some of them secret, with which Spark accesses S3 as delta-rs does. Raises ConfigError."""
    if not settings.is_on_s3:
        return {}
    options = access_options(settings.storage())
    known = (
        (theirs, options[ours]) for ours, theirs in _HADOOP_NAMES.items() if theirs is not None and ours in options
    )
    found = {f"spark.hadoop.fs.s3a.{name}": value for name, value in known}
    if "endpoint" in options or "endpoint_url" in options:
        hosted = options.get("virtual_hosted_style_request", "false")
        found["spark.hadoop.fs.s3a.path.style.access"] = "false" if hosted == "true" else "true"
    return {name: value for name, value in found.items() if name not in settings.spark}
