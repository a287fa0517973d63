"""What `check` and `quality` print, and what they refuse before Spark starts."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from silverfold.jobs import check, cli
from silverfold.pipelines.quality.check import Check, RuleCheck, TableCheck, Verdict

AT = datetime(2026, 1, 1, tzinfo=UTC)


def printed(*tables: TableCheck) -> str:
    out = io.StringIO()
    check.show(Check(at=AT, warehouse="lake", feed="market", passed=False, tables=tables), out)
    return out.getvalue()


def rule(name: str, action: str, failed: int, failed_aside: int = 0) -> RuleCheck:
    return RuleCheck.model_validate(
        {"rule": name, "condition": "v > 0", "action": action, "failed": failed, "failed_aside": failed_aside}
    )


def test_each_rule_says_how_many_rows_fail_it():
    rules = (rule("a", "fail", 1), rule("b", "quarantine", 2000, 1999), rule("c", "warn", 0))
    table = TableCheck(table="t", verdict=Verdict.FAILED, delta_version=7, rows=3000, rows_aside=1999, rules=rules)

    assert printed(table) == (
        "t: failed: 3,000 rows, 1,999 of them kept aside, at version 7\n"
        "  a: 1 row fails it (fail): v > 0\n"
        "  b: 2,000 rows fail it, 1,999 of them kept aside (quarantine): v > 0\n"
        "  c: all rows meet it\n"
    )


def test_a_table_that_cannot_be_judged_says_why_and_no_rules_say_where_they_are_set():
    assert printed(TableCheck(table="t", verdict=Verdict.NOT_BUILT)) == "t: not_built\n"
    assert printed(TableCheck(table="t", verdict=Verdict.UNKNOWN, reason="gone")) == "t: unknown: gone\n"
    assert printed() == "no rules: `expect` of a table of feed market is where they are set\n"


def test_what_is_refused_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "feeds").mkdir()
    feed = 'connector = "deephaven"\naddress = "127.0.0.1:1"\n[tables.quotes]\nsource = "Quotes"\n'
    (tmp_path / "feeds/market.toml").write_text(feed)
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(tmp_path / "lake"))
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    monkeypatch.delitem(sys.modules, "silverfold.pipelines.quality.suites", raising=False)

    for command, wanted in {
        ("check", "market", "--table", "trades"): "command line: --table: found 'trades', allowed: quotes",
        ("quality", "market"): "install silverfold[quality]",
    }.items():
        with pytest.raises(SystemExit) as ended:
            cli.main(["--conf", str(tmp_path), *command])
        error = capsys.readouterr().err
        assert (ended.value.code, error.count("\n")) == (2, 1), error
        assert wanted in error
