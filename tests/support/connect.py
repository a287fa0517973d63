"""Lets the JVM of a session serve Spark Connect too: a server without another JVM to start."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def serve(spark: SparkSession) -> str:
    """Serve the session's JVM on a free port of the loopback address, as long as it lives; return the URL."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{service.localPort()}"
