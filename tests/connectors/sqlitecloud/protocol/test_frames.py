"""SCSP frames: cut wherever the chunks end, read as the vectors say, refused with the vectors' reasons."""

from __future__ import annotations

import contextlib
import tracemalloc

import hypothesis.strategies as st
import lz4.block
import pytest
from hypothesis import example, given

import silverfold.conf.errors
from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.sqlitecloud.protocol.frames import MAX_FRAME_BYTES, FrameCutter, RawFrame, parse
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Message, RawText, Rowset, Single
from tests.support.sqlitecloud.vectors import message, names, octets, pieces, vectors

FRAMES = vectors("frames")
MALFORMED = vectors("malformed_frames")


def drain(cutter: FrameCutter) -> list[RawFrame]:
    return list(iter(cutter.next_frame, None))


def framed(kind: str, body: bytes) -> bytes:
    return b"%s%d %s" % (kind.encode(), len(body), body)


def read_all(whole: bytes, size: int, most: int, good: list[Message]) -> None:
    """Add what the frames say to ``good``, up to the end of the stream."""
    cutter = FrameCutter(max_frame_bytes=most)
    for piece in pieces(whole, size):
        cutter.receive(piece)
        while (raw := cutter.next_frame()) is not None:
            good.append(parse(raw, max_frame_bytes=most))
    cutter.receive_eof()
    assert cutter.next_frame() is None


def only(whole: bytes) -> Message:
    cutter = FrameCutter()
    cutter.receive(whole)
    (raw,) = drain(cutter)
    assert cutter.held == 0
    return parse(raw)


def refused(whole: bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        only(whole)
    return caught.value


@pytest.mark.parametrize("vector", FRAMES, ids=names(FRAMES))
def test_a_frame_says_what_its_vector_says_and_is_kept_as_it_came(vector):
    whole = octets(vector)
    cutter = FrameCutter()
    cutter.receive(whole)
    (raw,) = drain(cutter)
    assert (raw.octets, cutter.held) == (whole, 0)
    assert parse(raw) == message(vector["parsed"])


@pytest.mark.parametrize("vector", FRAMES, ids=names(FRAMES))
def test_byte_by_byte_a_frame_comes_with_its_last_byte_and_not_before(vector):
    whole = octets(vector)
    cutter = FrameCutter()
    for octet in pieces(whole[:-1], 1):
        cutter.receive(octet)
        assert cutter.next_frame() is None
    cutter.receive(whole[-1:])
    assert [raw.octets for raw in drain(cutter)] == [whole]


@pytest.mark.parametrize("vector", FRAMES, ids=names(FRAMES))
def test_no_shorter_beginning_of_a_frame_is_a_frame(vector):
    whole = octets(vector)
    for size in range(1, len(whole)):
        cutter = FrameCutter()
        cutter.receive(whole[:size])
        cutter.receive_eof()
        with pytest.raises(TruncatedMessage):
            cutter.next_frame()


@pytest.mark.parametrize("size", [1, 2, 7, 2048])
def test_frames_do_not_depend_on_where_chunks_end(size):
    wholes = [octets(vector) for vector in FRAMES]
    cutter, found = FrameCutter(), []
    for piece in pieces(b"".join(wholes), size):
        cutter.receive(piece)
        found += drain(cutter)
    assert [raw.octets for raw in found] == wholes


@pytest.mark.parametrize("size", [1, 2048])
@pytest.mark.parametrize("vector", MALFORMED, ids=names(MALFORMED))
def test_a_bad_frame_is_refused_for_its_reason_behind_the_good_ones(vector, size):
    most = vector.get("max_frame", MAX_FRAME_BYTES)
    good: list[Message] = []
    with pytest.raises(getattr(silverfold.conf.errors, vector["error"])) as caught:
        read_all(octets(vector), size, most, good)
    assert (caught.value.reason, len(good)) == (vector["reason"], vector.get("good_frames_before", 0))


def test_what_cannot_be_cut_is_refused_again_at_every_call_and_kept():
    cutter = FrameCutter()
    cutter.receive(b"+2 OK?rest")
    assert cutter.next_frame() == RawFrame("+", b"+2 OK", 3)
    for _ in range(2):
        with pytest.raises(InvalidValue, match="bad_type"):
            cutter.next_frame()
    cutter.receive(b" of it")
    assert cutter.left() == b"?rest of it"


def test_a_frame_at_the_limit_is_taken_and_one_above_it_refused_before_its_body_comes():
    cutter = FrameCutter(max_frame_bytes=5)
    cutter.receive(b"+5 hello+6 ")
    assert cutter.next_frame() == RawFrame("+", b"+5 hello", 3)
    with pytest.raises(OversizedMessage, match="a frame of 6 bytes is announced, 5 are allowed"):
        cutter.next_frame()


def test_a_header_ends_within_64_bytes():
    assert only(b":" + b"0" * 18 + b"7 ") == Single(7)
    cutter = FrameCutter()
    cutter.receive(b"," + b"1" * 62)
    assert cutter.next_frame() is None
    cutter.receive(b" ")
    assert parse(drain(cutter)[0]) == Single(float("1" * 62))
    cutter.receive(b"," + b"1" * 63 + b" ")
    with pytest.raises(InvalidValue, match="header_too_long"):
        cutter.next_frame()


def test_a_large_frame_in_small_pieces_and_many_small_ones_at_once_are_cut_without_copying_all_each_time():
    large = b"$8388608 " + bytes(8_388_608)
    cutter, found = FrameCutter(), []
    for piece in pieces(large + b"_ " * 50_000, 1000):
        cutter.receive(piece)
        found += drain(cutter)
    cutter.receive(b"_ " * 50_000)
    found += drain(cutter)
    assert found[0].octets == large
    assert found[1:] == [RawFrame("_", b"_ ", 1)] * 100_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b",1e3 ", 1000.0),
        (b",+.5 ", 0.5),
        (b",1. ", 1.0),
        (b",1E999 ", float("inf")),
        (b",-INF ", float("-inf")),
        (b",infinity ", float("inf")),
        (b",0x1.8p1 ", 3.0),
        (b",-0x1p9999 ", float("-inf")),
        (b":-0 ", 0),
        (b":-1 ", -1),
    ],
)
def test_numbers_are_read_as_strtod_and_strtoll_read_them(text, value):
    assert only(text) == Single(value)


NO_NUMBERS = [
    *[b":1_0 ", b":+1 ", b":\t1 ", b":--1 ", b":1.0 ", b":-9223372036854775809 ", b":1\xc2\xb2 ", b"_0 "],
    *[b",1_0 ", b",\t1 ", b",1\n ", b",e ", b",1e ", b",0x ", b",0x1p ", b",nanx ", b", ", b",1,5 ", b",--1 "],
    *[b",nan ", b",-NaN "],
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_python_would_take_for_a_number_and_strtod_would_not_is_refused(text):
    assert refused(text).reason == "bad_number"


def test_only_the_last_byte_of_a_zero_terminated_text_is_not_part_of_it():
    assert only(b"!4 a\0\0\0") == Single("a\0\0")


def test_text_that_is_not_utf8_keeps_its_bytes_and_is_no_blob():
    found = only(framed("*", b"0:1 1 2 +1 a+1 b+2 \xff\x00$1 \xff"))
    assert found == Rowset((Column("a"), Column("b")), [(RawText(b"\xff\x00"), b"\xff")])


@pytest.mark.parametrize(
    ("kind", "body", "reason", "offset"),
    [
        ("*", b"0:1 1000000000000 1 +1 k:1 ", "bad_rowset", 24),
        ("*", b"0:1 1 10000000000 _ ", "bad_rowset", 22),
        ("*", b"1:1 1 1 +1 k:1 ", "bad_rowset", 4),
        ("*", b"0:1 1 1 _ +1 k", "bad_rowset", 12),
        ("*", b"0:1 1 1 $1 k:1 ", "bad_rowset", 12),
        ("*", b"0:2 0 1 +1 k+0 +0 +0 +0 :0 :2 :0 ", "bad_rowset", 12),
        ("*", b"0:2 0 1 +1 k:0 +0 +0 +0 :0 :0 :0 ", "bad_rowset", 12),
        ("*", b"0:1 1 1 +1 k@1 ", "bad_rowset", 16),
        ("*", b"0:1 1 1 +1 k+x ", "bad_rowset", 16),
        ("*", b"0:1 1 1 +1 k  ", "bad_rowset", 16),
        ("*", b"0:1 1 1 +1 k:x ", "bad_number", 16),
        ("*", b"0:1 1 1 +1 k!0 ", "missing_nul", 16),
        ("=", b"1000000000 _ ", "bad_array", 4),
        ("=", b"1 #2 {}", "bad_array", 5),
        ("=", b"1 +9 x", "bad_array", 5),
        ("*", b"0:1 1 1 +1 k+9 x", "bad_rowset", 16),
        ("=", b"_ ", "bad_array", 3),
        ("=", b"1", "bad_array", 3),
        ("-", b"1:x no", "bad_error", 3),
        ("/", b"0 1 0 ", "bad_rowset", 3),
        ("/", b"2:1 1 1 +1 k:1 ", "bad_rowset", 16),
        ("%", b"99999999999999999999 1 ", "bad_compression", 4),
        ("%", b"3 0 /0 1:1 1 1 xyz", "bad_compression", 0),
        ("%", b"2 9 /0 1:1 1 1 xyz", "bad_compression", 19),
    ],
)
def test_counts_are_not_believed_and_errors_say_where(kind, body, reason, offset):
    error = refused(framed(kind, body))
    assert (error.reason, error.offset) == (reason, offset)


def test_a_block_is_not_expanded_beyond_the_limit_nor_beyond_what_its_size_can_become():
    far_too_large = framed("%", b"3 67108865 /0 1:1 1 1 xyz")
    assert isinstance(refused(far_too_large), OversizedMessage)
    assert "a block of 3 bytes does not expand to 1000" in str(refused(framed("%", b"3 1000 /0 1:1 1 1 xyz")))


@pytest.mark.parametrize(
    ("expanded", "header"),
    [(b"+1 k" + b"_ " * 5_000_000, b"/0 1:1 5000000 1 "), (b"+1 k" * 2_500_000, b"/0 1:1 0 2500000 ")],
)
def test_a_small_block_of_many_values_is_refused_before_they_take_memory(expanded: bytes, header: bytes) -> None:
    block = lz4.block.compress(expanded, store_size=False)
    frame = framed("%", b"%d %d %s%s" % (len(block), len(expanded), header, block))
    tracemalloc.start()
    error = refused(frame)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (type(error), error.reason, most < 4 * len(expanded)) == (OversizedMessage, "too_many_values", True)


ODD = st.sampled_from(
    [b"+", b"!", b"-", b"#", b"*", b"/", b"=", b"%", b":", b",", b"_ ", b"0:1 ", b"1:2 ", b"2 ", b" "]
)


@given(st.lists(st.one_of(st.binary(max_size=12), ODD, st.integers(0, 40).map(b"%d ".__mod__)), max_size=12))
@example([b"=8 1 ", b":1 :2 "])
def test_any_bytes_give_frames_or_our_errors(parts):
    cutter = FrameCutter()
    cutter.receive(b"".join(parts))
    cutter.receive_eof()
    with contextlib.suppress(WireError):
        while (raw := cutter.next_frame()) is not None:
            parse(raw)


@given(st.sampled_from(FRAMES), st.data())
def test_a_frame_with_bytes_changed_gives_another_frame_or_our_errors(vector, data):
    whole = bytearray(octets(vector))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cutter = FrameCutter()
    cutter.receive(whole)
    with contextlib.suppress(WireError):
        while (raw := cutter.next_frame()) is not None:
            parse(raw)


def test_memory_stays_near_the_bytes_that_came_whatever_they_announce():
    lies = [
        framed("*", b"0:1 999999999999 9 "),
        framed("*", b"0:2 1 999999999 "),
        framed("=", b"9999999999 "),
        framed("%", b"3 67108864 /0 1:1 1 1 xyz"),
        b"+67108864 ",
    ]
    tracemalloc.start()
    for lie in lies:
        cutter = FrameCutter()
        cutter.receive(lie)
        with contextlib.suppress(WireError):
            drained = cutter.next_frame()
            assert drained is None or parse(drained)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
