"""One list of rules, judged three times: as rows are built, by `check_tables`, and by Great Expectations."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import Expectation
from silverfold.jobs import cli
from silverfold.pipelines.quality.check import TableCheck, Verdict, check_tables
from silverfold.pipelines.quality.suites import QualityProject, SuiteResult
from tests.support.building import FEED, Built, table
from tests.support.deephaven.landed_history import LandedHistory

ROWS = {1: {"v": 1, "s": "a"}, 2: {"v": -2, "s": None}, 3: {"v": 300, "s": ""}, 4: {"v": None, "s": "d"}}


def rules(**conditions: tuple[str, str]) -> dict[str, Expectation]:
    return {name: Expectation(condition=of, action=action) for name, (of, action) in conditions.items()}  # type: ignore[arg-type]  # one of the three


RULES = rules(positive=("v > 0", "quarantine"), named=("s <> ''", "warn"), small=("v < 1000 OR v IS NULL", "fail"))


def landed(spark: SparkSession, warehouse: Path, expect: dict[str, Expectation]) -> tuple[Built, LandedHistory]:
    history = LandedHistory({"t": {"v": "Int", "s": "String"}})
    built = Built(spark, warehouse, {"t": table(expect=expect)})
    history.connect()
    return built, history


def checked(built: Built) -> TableCheck:
    (found,) = check_tables(built.spark, built.places, built.feed, ["t"])
    return found


def by_suites(built: Built, project: Path) -> list[SuiteResult]:
    return list(QualityProject.open(project).run(built.spark, built.places, built.feed, ["t"]))


def test_rows_kept_aside_are_judged_and_a_suite_of_ones_own_is_run_beside(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    import great_expectations as gx  # noqa: PLC0415 - takes seconds

    built, history = landed(spark, warehouse, RULES)
    history.snapshot("t", ROWS)
    assert built.land_and_build(history) == {}

    found = checked(built)

    assert (found.verdict, found.rows, found.rows_aside) == (Verdict.PASSED, 4, 2)
    assert [(each.rule, each.failed, each.failed_aside) for each in found.rules] == [
        ("positive", 2, 2),
        ("named", 2, 1),
        ("small", 0, 0),
    ]

    (suite,) = by_suites(built, tmp_path)
    assert (suite.suite, suite.verdict, suite.delta_version) == ("market.t", Verdict.PASSED, found.delta_version)
    assert [(each.expectation, each.severity, each.success, each.unexpected) for each in suite.expectations] == [
        ("positive", "warning", False, 2),
        ("named", "info", False, 2),
        ("small", "critical", True, 0),
    ]

    context = gx.get_context(mode="file", project_root_dir=tmp_path)
    own = [
        gx.expectations.ExpectTableRowCountToBeBetween(min_value=3),
        gx.expectations.ExpectColumnValuesToBeUnique(column="v", severity="warning"),
        gx.expectations.ExpectColumnValuesToBeUnique(column="missing"),
    ]
    context.suites.add(gx.ExpectationSuite("market.t.mine", expectations=own))
    built.settle(table(expect=rules(small=("v < 300", "fail"))))  # the build judges no row that is there already
    of_rules, mine = by_suites(built, tmp_path)

    judged = checked(built)
    assert (judged.verdict, of_rules.verdict) == (Verdict.FAILED, Verdict.FAILED)
    assert [each.unexpected for each in of_rules.expectations] == [judged.rules[0].failed] == [2]
    assert (mine.suite, mine.verdict) == ("market.t.mine", Verdict.FAILED)
    rows, unique, missing = mine.expectations
    assert (rows.expectation, rows.success) == ("expect_table_row_count_to_be_between", False)
    assert (unique.expectation, unique.success) == ("expect_column_values_to_be_unique v", True)
    assert missing.error is not None
    assert "missing" in missing.error

    for folder in ("expectations", "validation_definitions", "checkpoints"):
        (ours,) = (tmp_path / "gx" / folder).rglob("*t.json")
        whole = ours.read_text()
        ours.write_text("")
        of_rules, mine = by_suites(built, tmp_path)
        assert (of_rules.verdict, mine.verdict) == (Verdict.UNKNOWN, Verdict.FAILED)
        assert "files called market.t in `gx`" in str(of_rules.reason)
        ours.write_text(whole)
    (tmp_path / "gx/great_expectations.yml").write_text("{")
    with pytest.raises(ConfigError, match="its files whole"):
        by_suites(built, tmp_path)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 8))])
def test_all_three_count_the_same_rows(spark: SparkSession, warehouse: Path, tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    conditions = ["v > 0", "v IS NULL", "s LIKE 'a%'", "length(s) < 2", "v % 2 = 0", "NOT (s = '' OR v < 0)", "v = v"]
    expect = rules(**{f"r{n}": (chance.choice(conditions), "warn") for n in range(4)})
    built, history = landed(spark, warehouse, expect)
    values, words = [None, -1, 0, 1, 2, 7], [None, "", "a", "ab", "b"]
    history.snapshot("t", {n: {"v": chance.choice(values), "s": chance.choice(words)} for n in range(30)})
    assert built.land_and_build(history) == {}

    counted = {name: built.notes("t").get(f"failed.{name}", 0) for name in expect}

    assert {each.rule: each.failed for each in checked(built).rules} == counted
    (suite,) = by_suites(built, tmp_path)
    assert {each.expectation: each.unexpected for each in suite.expectations} == counted


def test_a_table_that_cannot_be_judged_is_unknown(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    built, history = landed(spark, warehouse, rules(number=("cast(s AS int) > 0", "warn")))
    assert checked(built).verdict is Verdict.NOT_BUILT
    assert [each.verdict for each in by_suites(built, tmp_path)] == [Verdict.NOT_BUILT]
    built.settle(table())
    history.snapshot("t", ROWS)
    assert built.land_and_build(history) == {}
    built.settle(table(expect=rules(number=("cast(s AS int) > 0", "warn"), gone=("w > 0", "warn"))))

    judged = checked(built)
    assert (judged.verdict, judged.reason) == (
        Verdict.UNKNOWN,
        "t: rule gone: UNRESOLVED_COLUMN.WITH_SUGGESTION `w`",
    )
    (suite,) = by_suites(built, tmp_path)
    assert (suite.verdict, suite.reason) == (Verdict.UNKNOWN, judged.reason)

    built.settle(table(expect=rules(number=("cast(s AS int) > 0", "warn"))))
    judged = checked(built)
    assert judged.reason == "rule number: t: Spark: CAST_INVALID_INPUT (try_cast and such give NULL)"
    (suite,) = by_suites(built, tmp_path)
    assert (suite.verdict, suite.reason) == (Verdict.UNKNOWN, judged.reason)


def test_a_table_whose_files_or_commits_are_gone_is_unknown_and_no_rule_is_blamed(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    built, history = landed(spark, warehouse, rules(positive=("v > 0", "warn")))
    history.snapshot("t", ROWS)
    assert built.land_and_build(history) == {}
    silver = Path(built.places.silver("market", "t").url.removeprefix("file://"))

    for file in silver.glob("*.parquet"):
        file.unlink()
    missing = [checked(built), *by_suites(built, tmp_path)]
    for commit in (silver / "_delta_log").glob("*.json"):
        commit.write_text("")
    damaged = [checked(built), *by_suites(built, tmp_path)]

    assert {(each.verdict, each.retryable) for each in (*missing, *damaged)} == {(Verdict.UNKNOWN, True)}
    assert all("silverfold verify" in str(each.reason) and "rule" not in str(each.reason) for each in missing)
    assert {str(each.reason) for each in damaged} == {str(damaged[0].reason)}
    assert "t: " in str(damaged[0].reason)


def test_a_suite_that_cannot_be_run_is_unknown_stays_as_it_is_and_costs_the_others_nothing(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    import great_expectations as gx  # noqa: PLC0415 - takes seconds

    built, history = landed(spark, warehouse, {})
    history.snapshot("t", ROWS)
    assert built.land_and_build(history) == {}
    context = gx.get_context(mode="file", project_root_dir=tmp_path)
    rows = gx.expectations.ExpectTableRowCountToBeBetween
    context.suites.add(gx.ExpectationSuite("market.t.fine", expectations=[rows(min_value=4)]))
    context.suites.add(gx.ExpectationSuite("market.gone.one", expectations=[rows(min_value=4)]))
    context.suites.add(gx.ExpectationSuite("market.t.asks", expectations=[rows(min_value={"$PARAMETER": "least"})]))
    folder = tmp_path / "gx/expectations/market/t"
    suite = json.loads((folder / "fine.json").read_text())
    suite["name"] = "market.t.newer"
    suite["expectations"].append({**suite["expectations"][0], "type": "expect_many_rows", "id": None})
    (folder / "newer.json").write_text(json.dumps(suite))
    (folder / "broken.json").write_text("{")
    (folder / "copied.json").write_text(json.dumps({**suite, "name": "market.t.fine"}))
    written = {file: file.read_bytes() for file in folder.iterdir()}

    found = {each.suite: each for each in by_suites(built, tmp_path)}

    verdicts = {suite: each.verdict for suite, each in found.items()}
    assert verdicts.pop("market.t.fine") is Verdict.PASSED
    assert set(verdicts.values()) == {Verdict.UNKNOWN}
    assert found["market.t.newer"].reason == "1 of its 2 expectations are of a type that is not known"
    assert "its name in the file is market.t.fine: make it market.t.copied" in str(found["market.t.copied"].reason)
    assert {file: file.read_bytes() for file in folder.iterdir()} == written
    assert "JSONDecodeError" in str(found["market.t.broken"].reason)
    assert "no table gone" in str(found["market.gone.one"].reason)
    assert found["market.t.asks"].reason is not None


def test_the_commands_print_and_exit_by_the_verdict(
    spark: SparkSession,
    warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built, history = landed(spark, warehouse, RULES)
    history.snapshot("t", ROWS)
    assert built.land_and_build(history) == {}
    (tmp_path / "feeds").mkdir()
    conf = 'connector = "deephaven"\naddress = "127.0.0.1:1"\n[tables.t]\nsource = "T"\n[tables.t.expect]\n'
    (tmp_path / "feeds" / f"{FEED}.toml").write_text(conf + 'small = { condition = "v < 300", action = "fail" }\n')
    monkeypatch.setenv("SILVERFOLD__WAREHOUSE", str(warehouse))
    monkeypatch.chdir(tmp_path)

    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(tmp_path), "check", FEED])
    assert ended.value.code == 1
    assert capsys.readouterr().out == (
        "t: failed: 4 rows, 2 of them kept aside, at version 0\n"
        "  small: 2 rows fail it, 1 of them kept aside (fail): v < 300\n"
    )

    with pytest.raises(SystemExit) as ended:
        cli.main(["--conf", str(tmp_path), "quality", FEED, "--json"])
    assert ended.value.code == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["passed"], printed["suites"][0]["expectations"][0]["unexpected"]) == (False, 2)
    assert Path(printed["docs"].removeprefix("file://")).is_file()
