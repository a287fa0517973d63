"""The simulator's command: it serves tables as streams until it is stopped, and says which option is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from silverfold.connectors.hstreamdb.protocol import methods as m
from silverfold.connectors.hstreamdb.protocol.frames import decode_batch
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType
from silverfold.connectors.hstreamdb.protocol.messages.offsets import SpecialOffset, StreamOffset
from silverfold.connectors.hstreamdb.protocol.records import HRecord
from silverfold.connectors.hstreamdb.server.command import hstreamdb
from silverfold.jobs.cli import as_command

COMMAND = """
import sys
from silverfold.connectors.hstreamdb.server.command import hstreamdb
from silverfold.jobs.cli import as_command

as_command("hstreamdb", hstreamdb)(sys.argv[1:])
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text("id,customer,price\n1,ann,1.5\n2,bob,2.25\n3,cy,4\n")
    return path


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_the_changes_of_a_table_and_ends_in_order_on_a_signal(orders: Path, number: signal.Signals) -> None:
    options = ("--shards", "2", "--compression", "zstd", "--changes-per-second", "500", "--changes-for", "0.5")
    with running("--nodes", "2", "--table", f"orders={orders}", *options) as process:
        assert process.stdout is not None
        listening, stream, quiet = (process.stdout.readline().strip() for _ in range(3))
        nodes = listening.removeprefix("listening on hstream://").split(",")
        assert len(nodes) == 2
        assert stream == "stream orders: 3 rows, 2 shards"
        changes = int(quiet.removeprefix("quiet after ").removesuffix(" changes"))
        start, end = (StreamOffset(special_offset=each) for each in (SpecialOffset.EARLIEST, SpecialOffset.LATEST))
        request = m.ReadStreamRequest(stream_name="orders", from_=start, until=end)
        with grpc.insecure_channel(nodes[1]) as channel:
            read = channel.unary_stream(
                m.READ_STREAM.path,
                request_serializer=m.ReadStreamRequest.SerializeToString,
                response_deserializer=m.ReadStreamResponse.FromString,
            )
            batches = [each for answer in read(request) for each in answer.received_records]
        records = [each.record for batch in batches for each in decode_batch(batch).records]
        assert len(records) == changes + 3
        assert {each.record.compression_type for each in batches} == {CompressionType.ZSTD}
        assert all(isinstance(each, HRecord) and set(each.fields) == {"key", "value"} for each in records)
        process.send_signal(number)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--table", "orders"], "is not NAME=FILE"),
        (["--table", "1=a.csv"], "is not NAME=FILE"),
        (["--table", "a=x.csv", "--table", "a=y.csv"], "is not NAME=FILE"),
        (["--layout", "diagonal"], "--layout"),
        (["--compression", "lz4"], "--compression"),
        (["--nodes", "0"], "--nodes"),
        (["--shards", "0"], "--shards"),
        (["--port", "65535", "--nodes", "2"], "there are no 2 ports from 65535 on"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        as_command("hstreamdb", hstreamdb)(arguments)
    assert left.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.replace("│", " ").split())
