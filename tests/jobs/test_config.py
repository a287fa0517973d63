from pathlib import Path

import pytest

from jobs.cli import main

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


def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, **feeds: str) -> tuple[object, str, str]:
    (tmp_path / "feeds").mkdir()
    for name, text in feeds.items():
        (tmp_path / "feeds" / f"{name}.toml").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(tmp_path), "config", "check"])
    shown = capsys.readouterr()
    return left.value.code, shown.out, shown.err


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


def test_mistakes_in_what_a_connector_defines_are_told_for_all_feeds(capsys, tmp_path):
    code, out, err = check(capsys, tmp_path, market=GOOD, other=NO_SUCH_CONNECTOR, third=WRONG_INSIDE)
    assert err == (
        f"silverfold: {tmp_path}/feeds/other.toml: connector: found 'deephavn', allowed: deephaven\n"
        f"silverfold: {tmp_path}/feeds/third.toml: options.schma: found 'builtin', "
        "allowed: no such key, did you mean schema? "
        "Known here: accept_schema_id, byte_order, date_times, prefix_counts, schema\n"
        f"silverfold: {tmp_path}/feeds/third.toml: tables.quotes.mode: found 'now_and_then', "
        "allowed: 'snapshot_only', 'snapshot_with_updates' or 'updates_only'\n"
    )
    assert (code, out) == (2, "")
