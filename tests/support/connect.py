"""Serves Spark Connect from the JVM of an existing session, so no second JVM is started."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def serve(spark: SparkSession) -> str:
    """Serve Spark Connect on a free loopback port for the lifetime of the JVM; return the URL."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{service.localPort()}"
