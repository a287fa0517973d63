"""Measures SBE decoding: ``python -m tests.bench.sbe [--runs N] [--messages N] [--parts single columns spark]``.

Prints JSON lines; seconds per message are medians of several alternating runs.

``single``: messages to dictionaries one by one, against hand-written code, the packages `sbe` and `sbedecoder` (the
extra ``interop``), and the limit: `struct` unpacking the same fields without converting them.
``columns``: many messages to Arrow, against single messages, the official Java decoder writing JSON, and the limit:
copying the finished columns once.
``spark``: the Spark function on one core, against the column decoding inside it, and against the limit: Spark passing
the frames through Python untouched.

``single`` and ``columns`` count processor seconds of one thread, since cores are shared; ``spark`` counts wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import time
from collections.abc import Callable

import pyarrow as pa

from silverfold.connectors.wire.sbe.codec.decode import MessageReader
from silverfold.connectors.wire.sbe.columnar.decode import decode_columns
from tests.bench.sbe import peers
from tests.bench.sbe.messages import Kind, kinds
from tests.bench.sbe.official import official_seconds
from tests.bench.sbe.spark import spark_seconds

_BARE = {
    "trade": (struct.Struct("<4HQQqiiIi8sQBBBbI").unpack,),
    "book": (struct.Struct("<4HQB2xHB" + 2 * "qiiIiBBc5x" + "H5xBQQiBB2x").unpack,),
}


def seconds(work: Callable[[], object], messages: int) -> float:
    """Return processor seconds per message."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / messages


def in_turn(works: dict[str, Callable[[], object]], messages: int, runs: int) -> dict[str, float]:
    """Return the median of each; all run once to warm up, then alternate."""
    for work in works.values():
        work()
    measured = [{name: seconds(work, messages) for name, work in works.items()} for _ in range(runs)]
    return {name: statistics.median(run[name] for run in measured) for name in works}


def each(decode: Callable[[bytes], object], bodies: list[bytes]) -> Callable[[], None]:
    """Return a function that decodes the messages one by one."""

    def work() -> None:
        for body in bodies:
            decode(body)

    return work


def single(name: str, kind: Kind, runs: int) -> None:
    """Measure decoding messages to dictionaries."""
    works = {
        "ours": each(MessageReader(kind.schema).read, kind.messages),
        "by_hand": each(peers.by_hand(name), kind.messages),
    }
    if name != "car":  # both packages lack data and references
        packages = {"sbe": peers.package_sbe(kind.file), "sbedecoder": peers.package_sbedecoder(kind.file)}
        works |= {package: each(decode, kind.messages) for package, decode in packages.items() if decode is not None}
        works["limit"] = each(_BARE[name][0], kind.messages)
    seconds = in_turn(works, len(kind.messages), runs)
    ratios = {f"{peer}_over_ours": round(seconds[peer] / seconds["ours"], 2) for peer in seconds if peer != "ours"}
    tell("single", name, microseconds={peer: round(1e6 * value, 2) for peer, value in seconds.items()}, **ratios)


def columns(name: str, kind: Kind, count: int, runs: int) -> float:
    """Measure decoding messages to Arrow; return the seconds per message."""
    bodies = pa.array((kind.messages * (count // len(kind.messages) + 1))[:count])
    few = kind.messages
    table = decode_columns(kind.schema, bodies).rows[kind.template].table
    buffers = [pa.py_buffer(bytes(table.nbytes))]
    ours = in_turn(
        {
            "columns": lambda: decode_columns(kind.schema, bodies),
            "limit": lambda: bytearray(buffers[0]),
        },
        count,
        runs,
    )
    one = in_turn({"single": each(MessageReader(kind.schema).read, few * 10)}, len(few) * 10, runs)["single"]
    official = statistics.median(official_seconds(kind, runs) or [0.0])
    tell(
        "columns",
        name,
        nanoseconds={
            "columns": round(1e9 * ours["columns"]),
            "limit": round(1e9 * ours["limit"]),
            "single": round(1e9 * one),
            "official_json": round(1e9 * official),
        },
        single_over_columns=round(one / ours["columns"], 1),
        official_over_columns=round(official / ours["columns"], 2),
        bytes_per_message={"wire": round(bodies.nbytes / count), "columns": round(table.nbytes / count)},
        messages_per_second=round(1 / ours["columns"]),
    )
    return ours["columns"]


def tell(part: str, name: str, **figures: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"bench": f"sbe-{part}", "messages": name, **figures}), flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--messages", type=int, default=200_000, help="how many at once, for columns and Spark")
    parser.add_argument("--parts", nargs="+", default=["single", "columns", "spark"])
    parser.add_argument("--kinds", nargs="+", default=["trade", "book", "car"])
    chosen = parser.parse_args()
    measured = {name: kind for name, kind in kinds().items() if name in chosen.kinds}
    inside = {}
    for name, kind in measured.items():
        if "single" in chosen.parts:
            single(name, kind, chosen.runs)
        if "columns" in chosen.parts:
            inside[name] = columns(name, kind, chosen.messages, chosen.runs)
    if "spark" in chosen.parts:
        for name, (ours, limit) in spark_seconds(measured, chosen.messages, chosen.runs).items():
            ratio = {"spark_over_columns": round(ours / inside[name], 2)} if name in inside else {}
            nanoseconds = {"spark": round(1e9 * ours), "limit": round(1e9 * limit)}
            tell("spark", name, nanoseconds=nanoseconds, rows_per_second=round(1 / ours), **ratio)


if __name__ == "__main__":
    main()
