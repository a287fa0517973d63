"""Consumes or appends records with the official Python client; prints the seconds and processor seconds it took.

Runs under a Python that has the client: ``official_client.py consume HOST:PORT SUBSCRIPTION COUNT``, or ``append
HOST:PORT STREAM COUNT BATCH ROWS``, where ROWS is a file with a JSON object a line.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from hstreamdb import BufferedProducer, insecure_client

ROLE, ADDRESS, NAME, COUNT, *OTHERS = sys.argv[1:]
HOST, _, PORT = ADDRESS.rpartition(":")


def now():
    return time.perf_counter(), time.process_time()


def since(began):
    return [there - here for there, here in zip(now(), began, strict=True)]


async def consume(client):
    """Get all records, and send all acknowledgements."""
    seen, done = 0, asyncio.Event()

    async def take(ack, _stop, records):
        nonlocal seen
        records = list(records)
        seen += len(records)
        await ack(record.id for record in records)
        if seen >= int(COUNT):
            done.set()

    consumer = client.new_consumer("official", NAME, take)
    began = now()
    task = asyncio.create_task(consumer.start())
    await done.wait()
    await consumer._requests.join()
    spent = since(began)
    task.cancel()
    return spent


async def append(client):
    """Append all rows in whole batches, of which one is under way at a time: so its producer works."""
    with Path(OTHERS[1]).open() as file:
        rows = [json.loads(line) for line in file]
    answered, done = 0, asyncio.Event()

    class Appended(BufferedProducer.AppendCallback):
        def on_success(self, _stream, payloads, _shard):
            nonlocal answered
            answered += len(payloads)
            if answered >= int(COUNT):
                done.set()

        def on_fail(self, _stream, _payloads, _shard, error):
            raise error

    began = now()
    producer = client.new_producer(append_callback=Appended())
    for number in range(int(COUNT)):
        await producer.append(NAME, rows[number % len(rows)], key="k")
        if (number + 1) % int(OTHERS[0]) == 0:
            await producer.flush_by_key(NAME, "k")
    await done.wait()
    return since(began)


async def main():
    async with await insecure_client(HOST, int(PORT)) as client:
        print(json.dumps(await {"consume": consume, "append": append}[ROLE](client)), flush=True)


asyncio.run(main())
