import inspect
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from silverfold.conf.errors import (
    ConfigError,
    Fenced,
    PositionGap,
    SilverfoldError,
    SourceRefused,
    SourceUnavailable,
    SparkUnavailable,
    StoreUnavailable,
)
from silverfold.jobs import cli
from silverfold.jobs.cli import JOBS, exit_code


def silverfold(*arguments: str, program: tuple[str, ...] = ("-m", "silverfold.jobs.cli"), **environ: str):
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**os.environ, "COLUMNS": "120", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def exits(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    return left.value.code


@pytest.mark.parametrize("name", JOBS)
def test_each_command_is_listed_with_the_first_line_of_its_own_help(name):
    module, attribute = JOBS[name].target.split(":")
    found = getattr(import_module(module), attribute)
    function = found.registered_callback.callback if isinstance(found, typer.Typer) else found
    assert inspect.getdoc(function).splitlines()[0] == JOBS[name].summary


@pytest.mark.parametrize("name", JOBS)
def test_each_command_has_a_page_of_help(name, capsys):
    assert exits([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: silverfold {name}" in shown
    assert "<bool>" not in shown


def test_the_version_is_told(capsys):
    assert exits(["--version"]) == 0
    assert capsys.readouterr().out == f"silverfold {version('silverfold')}\n"


@pytest.mark.parametrize("name", JOBS)
def test_each_job_is_a_module_that_runs_by_itself(name):
    module = JOBS[name].target.split(":")[0]
    source = find_spec(module).loader.get_source(module)
    assert source.endswith(f'\n\nif __name__ == "__main__":\n    main_of("{name}")\n')


def test_help_lists_every_command_and_loads_none():
    done = silverfold(
        program=(
            "-c",
            "import sys, silverfold.jobs.cli\ntry: silverfold.jobs.cli.main(['--help'])\nfinally: print(*sys.modules)",
        ),
    )
    shown, loaded = done.stdout.rsplit("\n", 2)[0], set(done.stdout.split())
    assert all(f" {name} " in shown for name in JOBS)
    assert not loaded & {"pyspark", "pyarrow", "numpy", "deltalake", "pydantic", *(f"jobs.{name}" for name in JOBS)}


def test_commands_load_spark_only_when_they_need_it():
    program = """
import sys, silverfold.jobs.cli
for name in ("receive", "status", "simulate", "sql"):
    try: silverfold.jobs.cli.main([name, "--help"])
    except SystemExit: print("", name, "pyspark" in sys.modules)
"""
    shown = silverfold(program=("-c", program)).stdout.splitlines()
    loaded = [line for line in shown if line.endswith((" True", " False"))]
    assert loaded == [" receive False", " status False", " simulate False", " sql False"]


def test_a_wrong_setting_is_one_line_and_exit_code_2():
    done = silverfold("config", "check", SILVERFOLD__LOG_LEVEL="loud", SILVERFOLD__WAREHOSE="x")
    assert done.stdout == ""
    assert done.stderr == (
        "silverfold: environment variable SILVERFOLD__LOG_LEVEL: log_level: found 'loud', "
        "allowed: 'debug', 'info', 'warning' or 'error'\n"
        "silverfold: environment variable SILVERFOLD__WAREHOSE: warehose: found a key that is not known, "
        "allowed: no such key, did you mean warehouse? "
        "Known here: build, feeds, lease, log_level, maintain, spark, storage_options, warehouse\n"
    )
    assert done.returncode == 2


def test_a_command_that_does_not_exist_is_answered_with_the_nearest(capsys):
    assert exits(["recieve"]) == 2
    assert "No such command 'recieve'. Did you mean 'receive'?" in capsys.readouterr().err


def test_a_job_runs_as_a_module_with_the_same_options(tmp_path):
    (tmp_path / "settings.toml").touch()
    done = silverfold("--conf", str(tmp_path), "--env=local", "check", program=("-m", "silverfold.jobs.config"))
    assert done.stdout == "0 feeds, warehouse warehouse: no mistakes\n"
    assert done.returncode == 0


def test_a_bug_is_not_taken_for_an_answer(monkeypatch, capsys):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr("silverfold.connectors.feeds.open_feeds", broken)
    assert exits(["config", "check"]) == 70
    assert "ZeroDivisionError: here" in capsys.readouterr().err


def test_a_spark_that_has_ended_is_no_bug(monkeypatch, capsys):
    def broken(*_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("silverfold.connectors.feeds.open_feeds", broken)
    monkeypatch.setattr("silverfold.pipelines.spark.session.has_ended", lambda: True)
    assert exits(["config", "check"]) == 3
    message = "silverfold: Spark has ended before its work was done. Start again: what was not committed is done anew\n"
    assert capsys.readouterr().err == message


def test_a_machine_without_spark_is_told_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "silverfold.pipelines.spark.session", raising=False)
    assert exits(["prepare"]) == 3
    message = "silverfold: Spark is not installed here: install silverfold[spark], or run this where a Spark is\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("words", "redirected", "code"),
    [
        ("--help", ">/dev/full", 3),
        ("--version", ">&-", 0),
        pytest.param("--version", "2>&-", 0, marks=pytest.mark.nightly),
        ("status x", "2>/dev/full", 2),
        ("status x", ">&- 2>&-", 2),
        pytest.param("nothing", "2>/dev/full", 2, marks=pytest.mark.nightly),
        ("nothing", "2>&-", 2),
    ],
)
def test_output_that_cannot_be_written_is_no_bug(words, redirected, code):
    line = f"{sys.executable} -m silverfold.jobs.cli {words} {redirected}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_an_interrupt_ends_without_a_traceback(monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("silverfold.connectors.feeds.open_feeds", interrupted)
    assert exits(["config", "check"]) == 130
    assert capsys.readouterr() == ("", "")


INTERRUPTED = """
import pkgutil, signal, sys

class Interrupt:
    def find_spec(name, *_):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
pkgutil.resolve_name(sys.argv[1])()
"""


def test_an_interrupt_of_the_first_imports_ends_without_a_traceback():
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    done = silverfold(scripts["silverfold"], program=("-c", INTERRUPTED))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(file="f", key="k", found=1, allowed="x"), 2),
        (SourceRefused(code="4", text="no such table"), 2),
        (PositionGap(feed="f", first=1, last=2), 2),
        (SilverfoldError("any"), 2),
        (SourceUnavailable("gone"), 3),
        (StoreUnavailable("full"), 3),
        (SparkUnavailable("no Java"), 3),
        (Fenced(owner="bronze of f", expected=1, found=2), 4),
    ],
)
def test_exit_codes_tell_scripts_what_to_do(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize(("level", "is_shown"), [("debug", True), ("info", False)])
def test_at_debug_level_an_error_is_logged_with_its_stack(tmp_path, monkeypatch, capsys, level, is_shown):
    (tmp_path / "feeds").mkdir()
    monkeypatch.setenv("SILVERFOLD__LOG_LEVEL", level)
    assert exits(["--conf", str(tmp_path), "status", "none"]) == 2
    shown = capsys.readouterr().err
    assert ('"event": "traceback", "exception": "Traceback' in shown, "Traceback" in shown) == (is_shown, is_shown)
