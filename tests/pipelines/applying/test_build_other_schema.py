"""A user's own schema XML, by one setting: server, receiver and build speak it, whatever it calls by which number."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from silverfold.connectors.deephaven.connector import CONNECTOR
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.types import ColumnType
from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import ROW_KEY, LiveTable
from silverfold.connectors.deephaven.server.workload import Changer
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.jobs.demo.tables import TABLES
from silverfold.pipelines.landing.receiving import receive
from silverfold.pipelines.store import open_table
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

        def differences() -> list[str]:
            return [name for name, table in live.items() if silver_rows(built, name, table) != source_rows(table)]

        asyncio.run(run())


def source_rows(table: LiveTable) -> dict[int, dict[str, str]]:
    """The source's own rows from its memory, as text: NaN equals NaN, 1 is not 1.0."""
    return {
        key: {name: repr(stored(table.columns[name], value)) for name, value in row.items()}
        for key, row in table.rows().items()
    }


def stored(kind: ColumnType, value: Any) -> Any:
    """A value of the source as silver has it: decimals as text, times in microseconds."""
    if value is None:
        return None
    if kind.element is not None:
        return [stored(kind.element, each) for each in value]
    if kind.name == "DateTime":
        return datetime(1970, 1, 1) + timedelta(microseconds=value // 1000)
    return str(value) if kind.name == "Decimal" else value


def silver_rows(built: Built, name: str, table: LiveTable) -> dict[int, dict[str, str]]:
    """Rows of silver by the source's row keys, read without Spark."""
    silver = open_table(built.places.silver(FEED, name))
    if silver is None:
        return {}
    rows = pa.RecordBatchReader.from_stream(silver.scan(columns=[ROW_KEY, *table.columns])).read_all()
    return {
        row[ROW_KEY]: {
            column: repr(sorted(row[column]) if kind.name == "StringSet" and row[column] else without_zone(row[column]))
            for column, kind in table.columns.items()
        }
        for row in rows.to_pylist()
    }


def without_zone(value: Any) -> Any:
    """A cell, with its times in UTC without saying so."""
    if isinstance(value, list):
        return [without_zone(each) for each in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
