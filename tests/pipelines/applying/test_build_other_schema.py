"""A user's own schema XML, by one setting: server, receiver and build speak it, whatever it calls by which number."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.jobs.demo.check import compare, read_silver
from silverfold.jobs.demo.tables import TABLES
from silverfold.pipelines.landing.receiving import receive
from tests.support.building import FEED, Built
from tests.support.deephaven.vectors import OTHER_SCHEMA
from tests.support.landing import LOG

PATIENCE = 120.0


def test_a_feed_of_another_schema_is_received_and_built(spark: SparkSession, tmp_path: Path) -> None:
    live = {name: demo.filled(200, Random(name)) for name, demo in TABLES.items()}
    settings = {name: DeephavenTable(source=demo.source) for name, demo in TABLES.items()}
    options = DeephavenOptions(schema=str(OTHER_SCHEMA))
    with TableServer.start(schema=load_schema(OTHER_SCHEMA)) as server:
        for name, table in live.items():
            server.export_table(TABLES[name].source, table)
        built = Built(spark, tmp_path, settings, options=options, address=f"127.0.0.1:{server.port}")

        async def run() -> None:
            stop = asyncio.Event()
            receiving = asyncio.create_task(
                receive(built.feed, CONNECTOR, built.places, stop=stop, clock=time.time, rng=Random(1), log=LOG)
            )
            try:
                for _ in range(3):
                    await asyncio.to_thread(changed, 10)
                    await asyncio.to_thread(eventually_equal)
            finally:
                stop.set()
                await receiving

        def changed(times: int) -> None:
            for table in live.values():
                changer = Changer(table, 7)
                for _ in range(times):
                    changer.change()

        def eventually_equal() -> None:
            deadline = time.monotonic() + PATIENCE
            while (found := differences()) and time.monotonic() < deadline:
                assert built.build() == {}
            assert found == []

        def differences() -> list[object]:
            return [
                difference
                for name, table in live.items()
                for difference in compare(
                    table.columns, table.rows(), read_silver(built.places.silver(FEED, name), list(table.columns))
                ).first
            ]

        asyncio.run(run())
