"""Does with the official Python client what an application does, and prints what it saw as JSON.

Run by a Python that has the client: ``client.py produce|consume|read HOST:PORT``.
"""

import asyncio
import json
import sys

from hstreamdb import BufferedProducer, ShardOffset, SpecialOffset, insecure_client

ROLE, ADDRESS = sys.argv[1:]
HOST, _, PORT = ADDRESS.rpartition(":")
COUNT = 30


async def produce(client):
    """Append texts, objects and bytes, at once, compressed and buffered; return the ids by payload."""
    await client.create_stream("official", shard_count=2)
    found, buffered = {}, []
    for number in range(3):
        payloads = [{"n": number * 10 + index} for index in range(3)]
        kind = "gzip" if number % 2 else None
        ids = await client.append("official", payloads, key=f"k{number}", compresstype=kind)
        found |= {json.dumps(each): list(record_id) for each, record_id in zip(payloads, ids, strict=True)}
    ids = await client.append("official", [b"raw", "text"])
    found |= {each: list(record_id) for each, record_id in zip(["raw", "text"], ids, strict=True)}

    class Appended(BufferedProducer.AppendCallback):
        def on_success(self, _stream, payloads, _shard):
            buffered.extend(each.payload["n"] for each in payloads)

        def on_fail(self, _stream, _payloads, _shard, error):
            raise error

    producer = client.new_producer(append_callback=Appended(), size_trigger=200)
    for number in range(10):
        await producer.append("official", {"n": 100 + number}, key=f"k{number}")
    await producer.wait_and_close()
    return {"streams": [each.name for each in await client.list_streams()], "appended": found, "buffered": buffered}


async def consume(client):
    """Acknowledge every second batch at once, the others when they come again; return payloads by id."""
    await client.create_subscription("of-the-official", "ours", ack_timeout=1, offset=SpecialOffset.EARLIEST)
    seen, frames, again = {}, 0, 0

    async def take(ack, stop, records):
        nonlocal frames, again
        batch = list(records)
        frames += 1
        repeated = sum(str(list(each.id)) in seen for each in batch)
        again += repeated
        seen.update({str(list(each.id)): each.payload for each in batch})
        if repeated or frames % 2:
            await ack([each.id for each in batch])
        if len(seen) == COUNT and again:
            await asyncio.sleep(0.5)
            await stop()

    await asyncio.wait_for(client.new_consumer("official", "of-the-official", take).start(), 60)
    subscriptions = [each.subscription_id for each in await client.list_subscriptions()]
    exists = await client.does_subscription_exist("of-the-official")
    await client.delete_subscription("of-the-official", force=True)
    left = [each.subscription_id for each in await client.list_subscriptions()]
    return {"seen": seen, "again": again, "subscriptions": subscriptions, "exists": exists, "left": left}


async def read(client):
    """Read the first shard from its start with a reader."""
    offset = ShardOffset(specialOffset=SpecialOffset.EARLIEST)
    async with client.with_reader("ours", "official-reader", offset, 500) as reader:
        first = [list(each.id) for each in await reader.read(2)]
        rest = [list(each.id) for each in await reader.read(100)]
    await client.delete_stream("ours", force=True)
    return {"first": first, "rest": rest, "streams": [each.name for each in await client.list_streams()]}


async def main():
    async with await insecure_client(HOST, int(PORT)) as client:
        print(json.dumps(await {"produce": produce, "consume": consume, "read": read}[ROLE](client)))


asyncio.run(main())
