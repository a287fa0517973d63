"""The command: the file it writes, how it ends, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from silverfold.jobs.cli import main
from silverfold.pipelines.places import Places
from tests.support.deephaven.landed_history import LandedHistory


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of settings with one feed of two tables, of which one has landed."""
    (tmp_path / "feeds").mkdir()
    (tmp_path / "settings.toml").write_text(f'warehouse = "{tmp_path}/lake"\n')
    (tmp_path / "feeds/market.toml").write_text(
        'connector = "deephaven"\naddress = "127.0.0.1:1"\n'
        '[tables.quotes]\nsource = "Quotes"\n[tables.trades]\nsource = "Trades"\n'
    )
    history = LandedHistory({"quotes": {"Qty": "Long"}})
    history.connect()
    history.land(Places(f"{tmp_path}/lake").bronze("market"), "market")
    return tmp_path


def exits(conf: Path, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(["--conf", str(conf), "report", "market", *arguments])
    return left.value.code


def damage(conf: Path, table: str) -> None:
    log = conf / "lake" / table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020}.json").write_text("garbage")


def test_the_page_is_named_after_the_feed_and_replaces_the_one_before(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(conf)
    (conf / "market.html").write_text("old")

    assert exits(conf) == 0

    written = (conf / "market.html").read_text(encoding="utf-8")
    assert written.startswith("<!DOCTYPE html>\n")
    assert "1 newest epochs of 1" in written
    printed = capsys.readouterr().out
    assert printed.startswith("market.html: 2 tables, ")
    assert printed.endswith(" KiB\n")
    assert sorted(each.name for each in conf.iterdir()) == ["feeds", "lake", "market.html", "settings.toml"]


def test_what_cannot_be_read_ends_with_3_and_the_page_has_the_rest(conf: Path, capsys: pytest.CaptureFixture[str]):
    damage(conf, "silver/market/quotes")

    assert exits(conf, "--output", str(conf / "page.html")) == 3

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "`silverfold rebuild market quotes` makes it anew" in error
    assert "<code>silverfold rebuild market quotes</code> makes it anew" in (conf / "page.html").read_text()


def test_without_anything_to_read_no_page_is_written(conf: Path, capsys: pytest.CaptureFixture[str]):
    (conf / "page.html").write_text("old")
    damage(conf, "_silverfold/market/cuts")

    assert exits(conf, "--output", str(conf / "page.html")) == 3
    assert (conf / "page.html").read_text() == "old"


def test_where_it_cannot_write_is_one_line(conf: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(conf / "pipe")
    for target, reason in {
        conf / "none/page.html": "No such file or directory",
        conf / "feeds": "Not a file",
        conf / "pipe": "Not a file",
    }.items():
        assert exits(conf, "--output", str(target)) == 2
        allowed = "allowed: a file in a folder that can be written"
        assert capsys.readouterr().err == f"silverfold: command line: --output: found '{target}: {reason}', {allowed}\n"


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_without_its_packages_it_names_what_to_install(
    conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
):
    monkeypatch.setitem(sys.modules, package, None)
    assert exits(conf) == 2
    assert capsys.readouterr().err == (
        "silverfold: command line: COMMAND: found 'report', "
        "allowed: one whose packages are here: install silverfold[report]\n"
    )


def test_it_never_loads_spark_and_its_help_no_chart(conf: Path):
    program = (
        "import sys\nfrom silverfold.jobs import cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(*({'pyspark', 'altair'} & set(sys.modules)))"
    )

    def loaded(*arguments: str) -> str:
        command = [sys.executable, "-c", program, "--conf", str(conf), "report", "market", *arguments]
        done = subprocess.run(command, cwd=conf, check=True, timeout=120, capture_output=True, text=True)
        return done.stdout.splitlines()[-1]

    assert (loaded(), loaded("--help")) == ("altair", "")
