"""The bronze table: its writer, fencing, compaction, and the readers that need no Spark."""

import contextlib
import re
import resource
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import silverfold.pipelines.landing.writer
from silverfold.conf.errors import ConfigError, Fenced, StoreUnavailable
from silverfold.connectors.frames import ControlFrame, Kind
from silverfold.pipelines.landing.bronze import (
    Landing,
    landing_at,
    last_position,
    read_frames,
    read_small_columns,
    read_stream,
)
from silverfold.pipelines.landing.bronze_table import SCHEMA
from silverfold.pipelines.landing.frame_sizes import FrameSizes
from silverfold.pipelines.landing.writer import BronzeWriter, compact
from silverfold.pipelines.places import Place
from tests.support.landing import ScriptedConnector

CONNECTOR = ScriptedConnector()
NOON = datetime(2026, 1, 2, 12, 0, 0, 7, tzinfo=UTC)


@pytest.fixture
def place(tmp_path):
    return Place(str(tmp_path / "bronze/market"))


def writer(place, token="a"):
    return BronzeWriter.open(place, "market", token=token)


def rows(first, count, *, kind="data", epoch=1, body=b"body"):
    rows = [
        {
            "frame_seq": position,
            "epoch": epoch,
            "received_at": NOON,
            "stream": "quotes",
            "kind": kind,
            "boundary": "inside",
            "source_position": f"s{position}",
            "body": body,
        }
        for position in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def positions(place, after=-1):
    return [position for batch in read_small_columns(place, after) for position in batch["frame_seq"].to_pylist()]


def test_the_table_is_made_on_first_use_append_only_with_the_columns_of_the_contract(place):
    writer(place)
    table = DeltaTable(place.url)
    assert table.metadata().configuration["delta.appendOnly"] == "true"
    assert "delta.setTransactionRetentionDuration" not in table.metadata().configuration
    assert [(field.name, field.type.type, field.nullable) for field in table.schema().fields] == [
        ("frame_seq", "long", False),
        ("epoch", "integer", False),
        ("received_at", "timestamp", False),
        ("stream", "string", True),
        ("kind", "string", False),
        ("boundary", "string", False),
        ("source_position", "string", True),
        ("body", "binary", False),
    ]


def test_a_new_table_begins_before_position_0_and_epoch_1(place):
    first = writer(place)
    assert (first.last, first.epoch, last_position(place, "market")) == (-1, 0, -1)


def test_a_commit_carries_its_last_position(place):
    writer(place).append(rows(0, 3))
    assert DeltaTable(place.url).transaction_version("receive/market") == 2
    assert last_position(place, "market") == 2


def test_a_writer_continues_where_the_last_one_stopped(place):
    writer(place).append(rows(0, 3, epoch=7))
    second = writer(place, "b")
    assert (second.last, second.epoch) == (2, 7)


def test_source_positions_are_read_back_per_stream(place):
    first = writer(place)
    first.append(rows(0, 3))
    assert first.resume(CONNECTOR).source_positions == {"quotes": "s2"}
    resume = first.resume(CONNECTOR, {"quotes": "s7"})
    assert (resume.source_positions, resume.silver_positions) == ({"quotes": "s2"}, {"quotes": "s7"})


def test_a_connector_makes_what_it_resumes_by_of_all_source_positions(place):
    class Joining(ScriptedConnector):
        def resume_position(self, landed):
            return "+".join(landed)

    first = writer(place)
    for start in (0, 2):
        first.append(rows(start, 2))
    assert first.resume(Joining()).source_positions == {"quotes": "s0+s1+s2+s3"}


def test_the_last_control_frame_of_the_feed_and_of_each_stream_is_read_back(place):
    first = writer(place)
    bodies = [(None, b"of the feed"), ("quotes", b"old"), ("trades", b"one"), ("quotes", b"new")]
    for position, (stream, body) in enumerate(bodies):
        frame = rows(position, 1, kind="control", body=body)
        at = frame.schema.get_field_index("stream")
        first.append(frame.set_column(at, SCHEMA.field("stream"), pa.array([stream], pa.string())))
    first.append(rows(4, 1))
    resume = first.resume(CONNECTOR)
    assert (resume.last_control, resume.stream_controls) == (b"of the feed", {"quotes": b"new", "trades": b"one"})


def test_another_table_at_the_place_is_a_named_mistake(place):
    DeltaTable.create(place.url, pa.schema([("a", pa.int64())]))
    with pytest.raises(ConfigError, match="a bronze table"):
        writer(place)


def test_of_two_writers_that_race_one_lands_and_the_other_is_fenced(place):
    one, two = writer(place, "a"), writer(place, "b")
    one.append(rows(0, 3))
    with pytest.raises(Fenced) as fenced:
        two.append(rows(0, 3))
    assert (fenced.value.owner, fenced.value.expected, fenced.value.found) == ("receive/market", -1, 2)
    assert positions(place) == [0, 1, 2]


def test_a_writer_whose_feed_was_taken_over_is_fenced(place):
    old = writer(place, "a")
    old.append(rows(0, 3))
    writer(place, "b").append(rows(3, 1))
    with pytest.raises(Fenced):
        old.append(rows(3, 2))
    assert positions(place) == [0, 1, 2, 3]


def test_a_commit_that_landed_though_the_store_reported_an_error_is_not_written_again(place, monkeypatch):
    one = writer(place)
    write = silverfold.pipelines.landing.writer.write_deltalake

    def write_and_lose_the_answer(*args, **kwargs):
        write(*args, **kwargs)
        raise OSError("connection reset by peer")

    monkeypatch.setattr(silverfold.pipelines.landing.writer, "write_deltalake", write_and_lose_the_answer)
    one.append(rows(0, 3))
    assert one.last == 2
    assert positions(place) == [0, 1, 2]


def test_a_commit_of_another_at_the_same_position_is_not_taken_for_ones_own(place, monkeypatch):
    one = writer(place, "a")
    write = silverfold.pipelines.landing.writer.write_deltalake
    with monkeypatch.context() as patched:
        patched.setattr(silverfold.pipelines.landing.writer, "write_deltalake", failing)
        with pytest.raises(StoreUnavailable):
            one.append(rows(0, 3))
    writer(place, "b").append(rows(0, 3))
    assert silverfold.pipelines.landing.writer.write_deltalake is write
    with pytest.raises(Fenced):
        one.append(rows(0, 3))


def failing(*_args, **_kwargs):
    raise OSError("no route to host")


def test_a_full_disk_is_an_unavailable_store_and_the_same_frames_land_later(place):
    one = writer(place)
    frames = rows(0, 4, body=bytes(range(256)) * 4096)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limit[1]))
    try:
        with pytest.raises(StoreUnavailable):
            one.append(frames)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    one.append(frames)
    assert positions(place) == [0, 1, 2, 3]


def test_a_table_that_vanished_is_an_unavailable_store(place):
    one = writer(place)
    one.append(rows(0, 1))
    place.local.rename(place.local.with_name("elsewhere"))
    with pytest.raises(StoreUnavailable):
        one.append(rows(1, 1))


def test_compaction_joins_files_and_keeps_rows_order_and_position(place):
    one = writer(place)
    for position in range(12):
        one.append(rows(position, 1))
    joined = compact(place)
    assert joined == 12
    assert len(DeltaTable(place.url).file_uris()) == 1
    assert positions(place) == list(range(12))
    assert writer(place, "b").last == 11


def test_a_writer_goes_on_across_a_compaction_it_did_not_see(place):
    one = writer(place)
    for position in range(3):
        one.append(rows(position, 1))
    compact(place)
    one.append(rows(3, 2))
    assert positions(place) == [0, 1, 2, 3, 4]


def test_a_writer_goes_on_when_another_program_has_dropped_old_log_files(place):
    one = writer(place)
    for position in range(3):
        one.append(rows(position, 1))
    compact(place)
    for version in range(4):
        (place.local / f"_delta_log/{version:020}.json").unlink()
    with contextlib.suppress(StoreUnavailable):  # what was open is gone: the next try opens the log anew
        one.append(rows(3, 1))
    one.append(rows(one.last + 1, 1))
    assert positions(place) == list(range(one.last + 1))


def test_compacting_what_does_not_exist_does_nothing(place):
    assert compact(place) == 0


def test_small_columns_come_in_order_without_bodies(place):
    one = writer(place)
    one.append(rows(0, 2))
    one.append(rows(2, 2, epoch=2))
    (first, second) = read_small_columns(place, after=0)
    assert first.schema.names == ["frame_seq", "epoch", "received_at", "stream", "kind", "boundary"]
    assert first.to_pylist() == [
        {
            "frame_seq": 1,
            "epoch": 1,
            "received_at": NOON,
            "stream": "quotes",
            "kind": "data",
            "boundary": "inside",
        }
    ]
    assert second["frame_seq"].to_pylist() == [2, 3]
    assert second["epoch"].to_pylist() == [2, 2]


def test_files_that_end_before_the_position_are_not_opened(place):
    one = writer(place)
    one.append(rows(0, 2))
    one.append(rows(2, 2))
    first = min(
        DeltaTable(place.url).to_pyarrow_dataset().files, key=lambda path: (place.local / path).stat().st_mtime_ns
    )
    (place.local / first).unlink()
    assert positions(place, after=1) == [2, 3]


def test_rows_that_another_program_shuffled_are_read_in_order(place):
    one = writer(place)
    one.append(rows(0, 6).take([5, 0, 4, 1, 3, 2]))
    assert positions(place) == [0, 1, 2, 3, 4, 5]


def test_files_with_overlapping_ranges_are_read_in_order(place):
    one = writer(place)
    one.append(rows(0, 6).take([0, 2, 4]))
    writer(place, "b").append(rows(0, 6).take([1, 3, 5]))
    assert positions(place, after=0) == [1, 2, 3, 4, 5]
    assert landing_at(place, 2) == Landing(int(NOON.timestamp()) * 1_000_000 + NOON.microsecond, "s2")
    assert landing_at(place, 6) is None


@pytest.mark.parametrize("damage", [b"garbage", b"PAR1", None], ids=["garbage", "cut short", "gone"])
def test_a_file_that_is_damaged_or_gone_is_told_in_one_line(place, damage):
    writer(place).append(rows(0, 6))
    (file,) = Path(place.url).glob("*.parquet")
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    for reading in (
        lambda: list(read_small_columns(place)),
        lambda: list(read_frames(place, kind=Kind.DATA)),
        lambda: list(read_stream(place, "quotes", first=0, last=5)),
        lambda: landing_at(place, 2),
        lambda: writer(place).resume(CONNECTOR),
    ):
        with pytest.raises(StoreUnavailable, match=re.escape(file.name)) as found:
            reading()
        assert len(str(found.value).splitlines()) == 1


def test_frames_of_one_kind_come_with_their_bodies(place):
    one = writer(place)
    one.append(rows(0, 1, kind="control", body=b"first"))
    one.append(rows(1, 3))
    one.append(rows(4, 1, kind="control", epoch=2, body=b"second"))
    assert list(read_frames(place, kind=Kind.CONTROL)) == [
        ControlFrame(0, 1, "quotes", b"first"),
        ControlFrame(4, 2, "quotes", b"second"),
    ]
    assert list(read_frames(place, kind=Kind.CONTROL, after=0)) == [ControlFrame(4, 2, "quotes", b"second")]


def test_the_size_of_a_frame_is_the_mean_of_its_file(place):
    one, sizes = writer(place), FrameSizes()
    one.append(rows(0, 100, body=b"x" * 1000))
    one.append(rows(100, 10, body=b"x" * 50_000))

    list(read_small_columns(place, sizes=sizes))

    small, large = sizes.of(np.array([99, 100]))
    assert (round(small, -1), round(large, -3)) == (1000, 50_000)


def test_a_feed_that_never_landed_reads_as_empty(place):
    assert positions(place) == []
    assert list(read_frames(place, kind=Kind.MARK)) == []
    assert last_position(place, "market") == -1
