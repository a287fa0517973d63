import os
from importlib.resources import files
from pathlib import Path

import pytest

import silverfold.pipelines.storage.lease
from silverfold.connectors.frames import Frame, Kind
from silverfold.connectors.registry import CONNECTORS
from silverfold.jobs.cli import main
from tests.support.sbe.feed import SbeFeed

EVOLUTION = Path(__file__).parents[1] / "golden" / "sbe" / "evolution"

GOOD = """
connector = "deephaven"
address = "127.0.0.1:7777"

[tables.quotes]
source = "Quotes"

[tables.trades]
source = "Trades"
columns = ["Id", "Price"]
keys = ["Id"]
"""
NO_SUCH_CONNECTOR = """
connector = "deephavn"

[tables.quotes]
source = "Quotes"
"""
WRONG_INSIDE = """
connector = "deephaven"
options.schma = "builtin"

[tables.quotes]
source = "Quotes"
mode = "now_and_then"
"""


STREAM = """
connector = "sbe"
address = "file:/data/frames.bin"
options = { schema = "builtin", framing = "sofh" }

[tables.Trade]

[tables.book]
template = "BookUpdate"
group = "entries"
keys = ["securityId", "side", "level"]
operation = "action"
"""


def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, **feeds: str) -> tuple[object, str, str]:
    (tmp_path / "feeds").mkdir()
    for name, text in feeds.items():
        (tmp_path / "feeds" / f"{name}.toml").write_text(text)
    return run(capsys, tmp_path, "config", "check")


def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, *command: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(tmp_path), *command])
    shown = capsys.readouterr()
    return left.value.code, shown.out, shown.err


def test_mistakes_of_every_part_of_a_feed_are_told_at_once(capsys, tmp_path):
    (tmp_path / "settings.toml").write_text('log_level = "loud"\n')
    wrong = """
        connector = "deephaven"
        address = "127.0.0.1:1"
        unknown = 1
        [commit]
        interval_ms = 0
        [options]
        text = "x"
        [tables.a]
        source = "A"
        mode = "y"
    """
    code, _, err = check(capsys, tmp_path, market=wrong, other='connector = "deephavn"\n[tables.t]\n[commit]\nno = 1\n')

    assert code == 2
    expected = ("log_level", "unknown", "commit.interval_ms", "options.text", "tables.a.mode", "connector", "commit.no")
    assert [key for key in expected if f": {key}: found" not in err] == []


@pytest.mark.parametrize("secret", ["bob:hunter2@", "?apikey=hunter2"])
def test_what_is_secret_in_an_address_is_not_shown(capsys, tmp_path, secret):
    address = f"sqlitecloud://{secret}db/x" if "@" in secret else f"sqlitecloud://db/x{secret}"
    feed = f'connector = "sqlitecloud"\naddress = "{address}"\n[tables.foo]\n'
    code, out, err = check(capsys, tmp_path, shop=feed)
    assert (code, "hunter2" in out + err, "shop: sqlitecloud at sqlitecloud://" in out) == (0, False, True)


@pytest.mark.parametrize(
    "address", ["sqlitecloud://me:sesame@h:8860/db?apikey=sesame", "me:sesame@h:1:2", "@sesame\\n@h:x"]
)
def test_what_is_secret_in_a_wrong_address_is_not_shown_either(capsys, tmp_path, address):
    code, out, err = check(capsys, tmp_path, market=GOOD.replace("127.0.0.1:7777", address))

    assert (code, "address: found" in err, "sesame" in out + err) == (2, True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        'adress = "sqlitecloud://me:sesame@h/db"',
        'options = "apikey=sesame"',
        'address = ["sqlitecloud://me:sesame@h/db"]',
        'options = { apikey = "sesame" }',
    ],
)
def test_what_may_be_a_secret_is_not_shown_where_it_is_misspelt(capsys, tmp_path, wrong):
    feed = f'connector = "sqlitecloud"\n{wrong}\n[tables.foo]\n'
    code, out, err = check(capsys, tmp_path, shop=feed)
    phrases = ("found what is no t", "found a key that is not known", "found a value that is not shown")
    assert (code, any(words in err for words in phrases), "sesame" in out + err) == (2, True, False)


@pytest.mark.parametrize("connector", ["sbe", "deephaven"])
def test_a_schema_that_is_a_pipe_is_not_waited_for(capsys, tmp_path, connector):
    os.mkfifo(tmp_path / "fifo")
    framing = 'framing = "sofh"\n' if connector == "sbe" else ""
    table = "keys = []\n" if connector == "sbe" else 'source = "Q"\n'
    head = f'connector = "{connector}"\naddress = "h:1"\n[options]\nschema = "{tmp_path}/fifo"\n'
    code, _, err = check(capsys, tmp_path, piped=f"{head}{framing}[tables.q]\n{table}")
    assert (code, "cannot be read: Not a file" in err) == (2, True)


def test_two_feeds_that_listen_at_one_port_are_a_mistake(capsys, tmp_path):
    hooks = """connector = "sqlitecloud_webhooks"\naddress = "{}"
options = {{ database = "db", insecure = true }}
[tables.a]\nkeys = ["id"]\ntypes = {{ id = "bigint" }}\n"""
    addresses = {"a": "", "b": "0.0.0.0:8090", "c": "localhost:8091", "d": "127.0.0.1:8091", "e": "[::1]:8091"}
    code, _, err = check(capsys, tmp_path, **{name: hooks.format(address) for name, address in addresses.items()})
    assert (code, [line.partition("address: ")[2] for line in err.splitlines()]) == (
        2,
        [
            "found '0.0.0.0:8090', allowed: another port: the feed a listens there",
            "found '127.0.0.1:8091', allowed: another port: the feed c listens there",
        ],
    )


def test_a_key_that_rows_cannot_be_told_apart_by_is_a_mistake(capsys, tmp_path):
    stream = STREAM.replace('"securityId", "side", "level"', '"price"')
    code, _, err = check(capsys, tmp_path, stream=stream)
    assert (code, err.count("tables.book.keys: found 'price', allowed: a column of one value each")) == (2, 1)


def test_a_warehouse_that_cannot_be_addressed_is_a_mistake(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", "lake [1]")
    code, _, err = check(capsys, tmp_path, market=GOOD)
    assert (code, "a folder without [ ] in its path" in err) == (2, True)


@pytest.mark.parametrize(("env", "warns"), [("cluster", 1), ("databricks", 0)])
def test_a_warehouse_on_s3_without_leases_is_spoken_of(capsys, tmp_path, monkeypatch, env, warns):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", "s3://lake/w")
    monkeypatch.setenv("SILVERFOLD__LEASE", "false")
    (tmp_path / "feeds").mkdir()
    code, out, _ = run(capsys, tmp_path, "--env", env, "config", "check")
    assert (code, out.count("two writers at once can lose commits")) == (0, warns)


def test_what_leases_need_is_asked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", "s3://lake/w")
    monkeypatch.setattr(silverfold.pipelines.storage.lease, "find_spec", lambda _name: None)
    code, _, err = check(capsys, tmp_path, market=GOOD)
    assert (code, "install silverfold[s3]" in err) == (3, True)


def test_each_feed_is_listed_with_what_was_found(capsys, tmp_path):
    code, out, err = check(capsys, tmp_path, market=GOOD)
    assert out == (
        "market: deephaven at 127.0.0.1:7777\n"
        "  quotes: Quotes, keys: the source's row keys\n"
        "  trades: Trades, keys: Id\n"
        "1 feed, warehouse warehouse: no mistakes\n"
    )
    assert (code, err) == (0, "")


def test_a_schema_that_cannot_be_used_is_a_mistake_of_its_setting(capsys, tmp_path):
    missing = GOOD.replace("\n\n", f'\noptions.schema = "{tmp_path}/none.xml"\n\n', 1)
    code, _, err = check(capsys, tmp_path, market=missing)
    assert err.startswith(f"silverfold: {tmp_path}/feeds/market.toml: options.schema: found '{tmp_path}/none.xml', ")
    assert "No such file" in err
    assert code == 2


def test_tables_of_templates_are_listed_by_their_messages(capsys, tmp_path):
    code, out, err = check(capsys, tmp_path, stream=STREAM)
    assert out == (
        "stream: sbe at file:/data/frames.bin\n"
        "  Trade: Trade, every row as it came\n"
        "  book: BookUpdate, keys: securityId, side, level\n"
        "1 feed, warehouse warehouse: no mistakes\n"
    )
    assert (code, err) == (0, "")


def test_an_sbe_schema_that_is_wrong_is_told_with_all_its_errors(capsys, tmp_path):
    xml = tmp_path / "bad.xml"
    xml.write_text('<messageSchema id="x" byteOrder="middle"/>')
    code, _, err = check(capsys, tmp_path, stream=STREAM.replace("builtin", str(xml)))
    assert f"stream.toml: options.schema: found '{xml}', allowed: builtin, or a valid SBE schema: {xml}:1: E02: " in err
    assert f"{xml}:1: E03: byteOrder 'middle'" in err
    assert code == 2


def test_a_message_without_elements_is_no_table(capsys, tmp_path):
    xml = (files("silverfold.connectors.sbe") / "market.xml").read_text(encoding="utf-8")
    (tmp_path / "own.xml").write_text(
        xml.replace("</sbe:message>", '</sbe:message><sbe:message name="Ping" id="9"/>', 1)
    )
    ping = STREAM.replace("builtin", str(tmp_path / "own.xml")).replace("[tables.Trade]", "[tables.Ping]")
    code, _, err = check(capsys, tmp_path, stream=ping)
    assert "tables.Ping.template: found nothing, allowed: a message, or a group, that has at least one element" in err
    assert code == 2


def test_a_framing_can_be_described_by_a_table(capsys, tmp_path):
    described = """{ length = "size", length_counts = 6, frame = { size = 6, numbers = [
        { name = "size", offset = 0, size = 4 }], marks = [{ offset = 4, bytes_hex = "feca" }] } }"""
    one_line = " ".join(described.split())
    code, out, err = check(capsys, tmp_path, stream=STREAM.replace('"sofh"', one_line))
    assert (code, err) == (0, "")
    assert "Trade" in out


@pytest.mark.parametrize(
    ("setting", "instead", "message"),
    [
        ('"file:/data/frames.bin"', '"file:"', "address: found 'file:', allowed: a path behind file:"),
        ('"file:/data/frames.bin"', '"nowhere"', "address: found 'nowhere', allowed: host:port, such as"),
        ('framing = "sofh"', 'framing = "soph"', "deephaven, sofh, sofh-little-endian, cme-ilink3, b3, memx, "),
        (
            'file:/data/frames.bin"\noptions = { schema = "builtin", framing = "sofh" }',
            '127.0.0.1:7100"\noptions = { schema = "builtin", framing = "whole" }',
            "options.framing: found 'whole', allowed: how messages stand in a stream, such as sofh: whole is for",
        ),
        ('"action"', '"action"\nabsent = "listed"', "absent = listed without keys"),
        (
            'framing = "sofh"',
            'framing = "b3-umdf"',
            "options.framing: found 'b3-umdf', allowed: a framing whose packets",
        ),
        ('framing = "sofh"', "framing = { size = 1 }", "options.framing.size: found a key that is not known"),
        ("[tables.Trade]", "[tables.Trades]", "tables.Trades.template: found 'Trades', allowed: one of Security, "),
        ('"BookUpdate"', '"Book"', "tables.book.template: found 'Book', allowed: one of Security, BookUpdate, Trade"),
        (
            '"entries"',
            '"legs"',
            "tables.book.group: found 'legs', allowed: BookUpdate.legs is no group; groups there: entries",
        ),
        ('"side"', '"sides"', "tables.book.keys: found 'sides', allowed: one of transactTime, securityId, side, "),
        ('"action"', '"size"', "tables.book.operation: found 'size', allowed: a field of an enum: side, action"),
        ('"action"', '"side"', "tables.book.operation: found 'side', allowed: a field with values such as New, "),
        ('"action"', '"action"\ndeletes = ["Gone"]', "tables.book.deletes: found 'Gone', allowed: one of New, Change"),
        ("[tables.Trade]", '[tables.Trade]\noperation = "x"', "operation with keys"),
        ("[tables.Trade]", '[tables.Trade]\nwith = ["x"]', "with only with group"),
        ("[tables.Trade]", "[tables.Trade]\nstored_as_scd_type = 2", "stored_as_scd_type = 2 with keys"),
        ("[tables.Trade]", '[tables.Trade]\ninserts = ["New"]', "inserts, updates and deletes only with operation"),
        (
            '"action"',
            '"action"\ninserts = ["New"]\nupdates = ["New"]',
            "each value once in inserts, updates and deletes",
        ),
        (
            "[tables.Trade]",
            '[tables.Trade]\nsource = "Trade"',
            "tables.Trade.source: found a key that is not known, allowed: no such key",
        ),
        ('"entries"', '"entries"\nwith = ["none"]', "tables.book.with: found ['none'], allowed: with: none does not"),
    ],
)
def test_what_an_sbe_feed_names_must_be_in_its_schema(capsys, tmp_path, setting, instead, message):
    assert setting in STREAM
    code, _, err = check(capsys, tmp_path, stream=STREAM.replace(setting, instead, 1))
    assert message in err
    assert code == 2


@pytest.mark.parametrize(
    ("setting", "instead"),
    [('framing = "sofh"', 'framing = "whole"'), ("[tables.Trade]", '[tables.Trade]\nabsent = "listed"')],
)
def test_what_fits_together_is_no_mistake(capsys, tmp_path, setting, instead):
    code, _, _ = check(capsys, tmp_path, stream=STREAM.replace(setting, instead, 1))
    assert code == 0


def landed(tmp_path: Path, version: int) -> SbeFeed:
    """Land a schema, as the receiver of feed ``stream`` does, and configure the feed."""
    feed = SbeFeed(tmp_path / "lake", {})
    feed.land_frames(Frame((EVOLUTION / f"order-v{version}.xml").read_bytes(), Kind.CONTROL))
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/lake"\n')
    return feed


def orders(schema: Path) -> str:
    return f"""
connector = "sbe"
address = "file:/data/frames.bin"
options = {{ schema = "{schema}", framing = "sofh" }}

[tables.Order]
"""


def test_what_changed_in_a_schema_since_it_landed_is_told(capsys, tmp_path):
    landed(tmp_path, 0)
    code, out, err = check(capsys, tmp_path, stream=orders(EVOLUTION / "order-v1.xml"))
    assert out == (
        "stream: sbe at file:/data/frames.bin\n"
        "  Order: Order, every row as it came\n"
        "  schema changed since it landed: version 0 → 1\n"
        "    Order.price: field added at the end (R20): now: int32 at 6, since 1\n"
        "    Order.legs.ratio: field added at the end (R20): now: uint8 at 2, since 1\n"
        f"1 feed, warehouse {tmp_path}/lake: no mistakes\n"
    )
    assert (code, err) == (0, "")


def test_a_schema_that_misreads_what_landed_is_no_right_answer(capsys, tmp_path):
    landed(tmp_path, 1)
    retyped = tmp_path / "retyped.xml"
    retyped.write_text(
        (EVOLUTION / "order-v1.xml").read_text("utf-8").replace('id="2" type="uint16"', 'id="2" type="int16"'), "utf-8"
    )
    code, out, _ = check(capsys, tmp_path, stream=orders(retyped))
    assert "\n  schema changed since it landed, and misreads what landed: version 1 → 1\n    schema: version not" in out
    assert out.endswith(f"1 feed, warehouse {tmp_path}/lake: what landed would be misread\n")
    assert code == 1

    code, out, err = run(capsys, tmp_path, "build", "stream")
    assert "schema changed since it landed, and misreads what landed: version 1 " in out + err
    assert code == 0
    warned = run(capsys, tmp_path, "verify", "stream")[2]
    assert '"what is expected of frames that landed before is read by the schema of today"' in warned
    code, out, err = run(capsys, tmp_path, "rebuild", "stream", "Order")
    assert out.startswith("silverfold: Order was not rebuilt, it stands as it was: schema changed since it landed, ")
    assert code == 1


@pytest.mark.parametrize("schema", ["order-v2.xml", "said.xml"])
def test_a_schema_that_says_the_same_as_what_landed_is_not_told(capsys, tmp_path, schema):
    landed(tmp_path, 2)
    same = tmp_path / schema
    same.write_bytes((EVOLUTION / "order-v2.xml").read_bytes() + (b"<!-- by us -->\n" if schema == "said.xml" else b""))
    code, out, _ = check(capsys, tmp_path, stream=orders(same))
    assert "changed" not in out
    assert code == 0


def test_a_store_that_does_not_answer_is_no_mistake_of_the_settings(capsys, tmp_path):
    (landed(tmp_path, 2).warehouse / "bronze" / "stream" / "_delta_log" / f"{0:020}.json").write_text("{")
    code, out, _ = check(capsys, tmp_path, stream=orders(EVOLUTION / "order-v2.xml"))
    assert f"\n  what landed cannot be looked at: {tmp_path}/lake/bronze/stream: " in out
    assert code == 0


def test_a_warehouse_is_tried_when_asked_and_left_as_it_was(spark, capsys, tmp_path):
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/lake"\n')
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds" / "market.toml").write_text(GOOD)
    code, out, _ = run(capsys, tmp_path, "config", "check", "--connect")
    assert out.endswith(f"a table was written, read and removed there, by delta-rs and by Spark {spark.version}\n")
    assert code == 0
    assert not [*(tmp_path / "lake").iterdir()]


def test_a_warehouse_that_cannot_be_written_is_told_without_spark(capsys, tmp_path):
    (tmp_path / "settings.toml").write_text('warehouse = "/proc/lake"\n')
    code, out, err = run(capsys, tmp_path, "config", "check", "--connect")
    assert out == "0 feeds, warehouse /proc/lake: no mistakes\n"
    assert err.startswith("silverfold: /proc/lake/_trial-")
    assert err.count("\n") == 1
    assert code == 3


def test_mistakes_in_what_a_connector_defines_are_told_for_all_feeds(capsys, tmp_path):
    code, out, err = check(capsys, tmp_path, market=GOOD, other=NO_SUCH_CONNECTOR, third=WRONG_INSIDE)
    assert err == (
        f"silverfold: {tmp_path}/feeds/other.toml: connector: found 'deephavn', "
        f"allowed: {', '.join(sorted(CONNECTORS))}\n"
        f"silverfold: {tmp_path}/feeds/third.toml: options.schma: found a key that is not known, "
        "allowed: no such key, did you mean schema? "
        "Known here: accept_schema_id, byte_order, date_times, prefix_counts, schema, silent_after, text\n"
        f"silverfold: {tmp_path}/feeds/third.toml: tables.quotes.mode: found 'now_and_then', "
        "allowed: 'snapshot_only', 'snapshot_with_updates' or 'updates_only'\n"
    )
    assert (code, out) == (2, "")
