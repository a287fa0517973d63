"""Measures us against the official Python client, with a pacing at which it loses nothing: one frame per TLS record."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import trustme

from tests.bench.sqlitecloud.landing import at_a_place, spent_to_land, spent_to_read
from tests.bench.sqlitecloud.source import TABLE, Sent, Source, source
from tests.interop.sqlitecloud_clients import Missing, python_client

_SCRIPT = Path(__file__).with_name("official_client.py")


def official(notifications: int, runs: int) -> dict[str, object]:
    """Let the official client receive and ours land, alternating; return the line to print."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        try:
            python_client(folder)
        except Missing as reason:
            return {"bench": "sqlitecloud-official", "missing": str(reason)}
        authority, certificate = trustme.CA(), folder / "server.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        sent = Sent(notifications, certificate=certificate)
        assert sent.authority is not None
        authority.cert_pem.write_to_path(sent.authority)
        return beside(folder / "packages", sent, runs)


def beside(packages: Path, sent: Sent, runs: int) -> dict[str, object]:
    """Measure with an installed official client."""
    notifications = sent.notifications
    theirs, busy, paced, landed = list[float](), list[float](), list[float](), list[float]()
    with source(replace(sent, joined=False)) as paced_source, source(sent) as fast_source:
        for _ in range(runs):
            found = received_by_official(packages, paced_source)
            assert found["heard"] == notifications, found
            theirs.append(found["seconds"])
            busy.append(found["busy"] / found["seconds"])
            paced.append(asyncio.run(spent_to_read(paced_source)).seconds)
            landed.append(at_a_place(lambda place: asyncio.run(spent_to_land(fast_source, place))).seconds)
    their, slow, ours = map(statistics.median, (theirs, paced, landed))
    return {
        "bench": "sqlitecloud-official",
        "notifications": notifications,
        "landed_per_second": round(notifications / ours),
        "official_heard_per_second": round(notifications / their),
        "official_busy": round(statistics.median(busy), 2),
        "heard_per_second_from_its_sender": round(notifications / slow),
        "ratio": round(their / ours, 1),
        "aim": 5,
        "runs": runs,
    }


def received_by_official(packages: Path, serving: Source) -> Any:
    """Return the client's output: the number of notifications, the seconds, and the busy seconds among them."""
    command = ["env", f"PYTHONPATH={packages}", sys.executable, str(_SCRIPT), serving.address, TABLE]
    with subprocess.Popen(
        [*command, str(serving.sent.notifications)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "listening\n"
        serving.send()
        client.stdin.write("begin\n")
        client.stdin.close()
        return json.loads(client.stdout.readline())
