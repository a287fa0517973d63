"""Measures our producer against the official one: HRecords of eight values, all with one key."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from silverfold.connectors.hstreamdb.client import connect
from tests.bench.hstreamdb.source import STREAM, Stored, cluster, rows
from tests.bench.sqlitecloud.landing import Spent, median, now, since
from tests.interop.sqlitecloud_clients import OfficialClient

DISTINCT = 5_000


def appending(records: int, batch: int, runs: int, official: OfficialClient | None) -> dict[str, object]:
    """Append with both, alternating; return the line to print."""
    ours, theirs = list[Spent](), list[Spent]()
    with tempfile.TemporaryDirectory() as folder, cluster(Stored(0, batch)) as address:
        file = Path(folder) / "rows.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows(DISTINCT)))
        for _ in range(runs):
            ours.append(asyncio.run(append(address, records, batch)))
            if official is not None:
                node = address.removeprefix("hstream://")
                theirs.append(Spent(*official.run("append", node, STREAM, str(records), str(batch), str(file))))
    mine = median(ours)
    line: dict[str, object] = {
        "bench": "hstreamdb-appending",
        "records": records,
        "batch": batch,
        "appended_per_second": round(records / mine.seconds),
        "processor_microseconds": round(1e6 * mine.processor / records, 2),
        "runs": runs,
    }
    if theirs:
        their = median(theirs)
        line |= {"official_per_second": round(records / their.seconds), "aim": 5}
        line |= {"ratio": round(their.seconds / mine.seconds, 1)}
        line |= {"processor_ratio": round(their.processor / mine.processor, 1)}
    return line


async def append(address: str, records: int, batch: int) -> Spent:
    """Return the time until all records are answered."""
    made = rows(DISTINCT)
    async with await connect(address) as client:
        began = now()
        async with client.producer(STREAM, max_records=batch) as producer:
            for number in range(records):
                await producer.submit(made[number % DISTINCT], "k")
        return since(began)
