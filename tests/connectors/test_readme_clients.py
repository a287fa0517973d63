"""The clients and codecs that the README shows need no feed, and run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import apsw

from silverfold.connectors.deephaven.server.server import TableServer
from silverfold.connectors.deephaven.server.tables.live_table import LiveTable
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from tests.support.polling import PATIENCE

ROOT = Path(__file__).parents[2]


def printed(imported: str) -> str:
    """Return the program of the README that imports this first."""
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if f"from silverfold.connectors.{imported}" in block)
    return found


def output(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_deephaven_client() -> None:
    table = LiveTable({"Sym": "String", "Bid": "Double", "Ask": "Double"})
    with table.update() as update:
        first, second = update.add([{"Sym": "AAPL", "Bid": 1.5, "Ask": 2.0}, {"Sym": "IBM", "Bid": 2.5, "Ask": 3.0}])
    with TableServer.start() as server:
        server.export_table("Quotes", table)
        program = printed("deephaven.client import").replace("7777", str(server.port))
        steps = "tables.expect_updates(1)\n    print('snapshot', flush=True)\n    tables.expect_updates(3)"
        program = program.replace("tables.expect_updates(3)", steps)
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "snapshot\n"
            with table.update() as update:
                update.modify({first: {"Bid": 1.75}})
            with table.update() as update:
                update.remove([second])
            assert running.stdout.read().splitlines() == [
                f"removed from 1 [[{second}, {second}]]",
                f"{{{first}: {{'Sym': 'AAPL', 'Bid': 1.75}}}}",
            ]


def test_a_sqlite_cloud_client(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with apsw.Connection(str(file)) as database:
        database.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY, total NUMERIC)")
    with SqliteCloudServer.start({"shop.db": file}) as server:
        block = printed("sqlitecloud.client.client import").replace("8860", str(server.port))
        imports, body = block.split("\n\n")
        insert = '    await db.exec("INSERT INTO orders VALUES (7, 9.5)")\n'
        body = body.replace("    async for", f"{insert}    async for").replace("if not is_mine", "if is_mine")
        main = f"async def main():\n{indent(body, '    ')}            return\n"
        shown = output(f"import asyncio\n{imports}\n{main}asyncio.run(main())\n")
        assert re.fullmatch(r"\S+ orders \[Change\(.*7.*9\.5.*\)\]\n", shown)


def test_messages_of_sbe() -> None:
    program = printed("wire.sbe import")
    assert "'tradeId': 7" in output(program)


def test_the_codec_of_tengi() -> None:
    packet, *fields = output(printed("tengi.protocol import Decoder")).splitlines()
    assert "Steven" in packet
    assert fields[-1].startswith("TruncatedMessage: ")
