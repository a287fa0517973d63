"""jobs/DEPLOY.md and the units of jobs/systemd: what they name is there, and a service ends and begins as they say."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from ruamel.yaml import YAML

from silverfold.conf.errors import ConfigError, Fenced, StoreUnavailable
from silverfold.conf.load import load_settings
from silverfold.jobs.cli import JOBS, count_before_command, exit_code, load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "jobs" / "DEPLOY.md").read_text(encoding="utf-8")
FILES = sorted(path for path in (ROOT / "jobs" / "systemd").rglob("*") if path.is_file())
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = "/opt/silverfold/bin/silverfold"


def unit(file: Path) -> configparser.ConfigParser:
    """Read a unit. A key that stands twice in a section is an error, though systemd allows it for some."""
    parser = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    parser.optionxform = str
    parser.read_string(file.read_text(encoding="utf-8"))
    return parser


UNITS = {file.name: unit(file) for file in FILES}
SERVICES = {name: parser["Service"] for name, parser in UNITS.items() if name.endswith(".service")}
COMMON = UNITS["server.conf"]["Service"]


def commands() -> Iterator[str]:
    """Yield the words of each command that the page or a unit runs, without the program's name."""
    prose = re.sub(FENCED, "", PAGE)
    texts = [
        *(text for _, text in re.findall(FENCED, PAGE)),
        *(" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)),
    ]
    for text in [*texts, *(service["ExecStart"] for service in SERVICES.values())]:
        yield from re.findall(r"(?:^|[\s/])(?:silverfold|as_service) ((?:--conf \S+ )?[a-z][^|#\n\"';]*)", text)
        yield from re.findall(r'SILVERFOLD \+ "([^|"]+)', text)
        yield from (text for name in JOBS if text.startswith(f"{name} ") and "=" not in text)


COMMANDS = sorted(set(map(str.strip, commands())))


def test_the_commands_of_page_and_units_are_found():
    assert {
        "receive market --metrics-port 9465",
        "build market --once --json",
        "config check --connect",
        "verify market",
    } <= set(COMMANDS)
    assert {each.split()[0] for each in COMMANDS} >= {"receive", "build", "check", "maintain", "verify", "metrics"}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_parses(words: str):
    arguments = words.split()
    name, *rest = arguments[count_before_command(arguments) :]
    if isinstance(command := load(name), typer.core.TyperGroup):
        _, command, rest = command.resolve_command(command.make_context(name, rest), rest)
    assert command.make_context(command.name, rest).command is command


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_runs_silverfold_from_where_the_page_installs_it(name: str):
    words = shlex.split(SERVICES[name]["ExecStart"])
    command = words[words.index(PROGRAM) + 1]
    assert name in {f"silverfold-{command}.service", f"silverfold-{command}@.service"}
    assert ("%i" in words) == ("@" in name)
    assert "-m venv /opt/silverfold " in PAGE


def test_a_timer_has_a_service_that_ends():
    timers = [name for name in UNITS if name.endswith(".timer")]
    assert [SERVICES[name.replace(".timer", ".service")]["Type"] for name in timers] == ["oneshot"] * len(timers)
    assert [UNITS[name]["Timer"]["Persistent"] for name in timers] == ["true"] * len(timers)


def test_a_service_that_cannot_go_on_is_not_started_again():
    fenced = exit_code(Fenced(owner="market", expected=1, found=2))
    wrong = exit_code(ConfigError(file="settings", key="warehouse", found=None, allowed="a folder"))
    away = str(exit_code(StoreUnavailable("no route")))
    never = {name: service.get("RestartPreventExitStatus", "").split() for name, service in SERVICES.items()}
    assert never["silverfold-receive@.service"] == [str(wrong), str(fenced)]
    restarted = {name for name, service in SERVICES.items() if service.get("Restart") == "on-failure"}
    assert restarted == {name for name, service in SERVICES.items() if service["Type"] == "exec"}
    assert all(str(wrong) in never[name] and away not in never[name] for name in restarted)


def test_a_following_build_has_the_jvm_of_the_packaged_settings_with_its_second_compiler():
    (variable,) = shlex.split(SERVICES["silverfold-build.service"]["Environment"])
    name, _, value = variable.partition("=")
    ours, packaged = load_settings(None, "local", {name: value}).spark, load_settings(None, "local", {}).spark
    options = "spark.driver.extraJavaOptions"
    assert {**ours, options: ""} == {**packaged, options: ""}
    left_out = {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"}
    assert set(str(ours[options]).split()) == set(str(packaged[options]).split()) - left_out


def test_what_breaks_a_jvm_is_left_out_and_cuts_end_before_it_is_killed():
    assert COMMON["KillMode"] == "mixed"
    assert not {"MemoryDenyWriteExecute", "ProcSubset"} & set(COMMON)


def test_every_unit_and_folder_of_the_page_is_there():
    named = {
        re.sub(r"@\w*\.", "@.", each) for each in re.findall(r"silverfold-[\w@-]+\.(?:service|timer)(?!\.d)", PAGE)
    }
    assert named == {name for name in UNITS if name.endswith((".timer", ".service"))} - {
        "silverfold-check@.service",
        "silverfold-maintain@.service",
        "silverfold-verify@.service",
    }
    assert COMMON["EnvironmentFile"] in PAGE
    assert f"--home-dir {COMMON['WorkingDirectory']} " in PAGE
    assert COMMON["WorkingDirectory"] == f"/var/lib/{COMMON['StateDirectory']}"


def anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_the_page_links_to_what_is_there_and_the_readme_to_the_page():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = link.partition("#")
        file = (ROOT / "jobs" / path).resolve() if path else ROOT / "jobs" / "DEPLOY.md"
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link
    assert "](jobs/DEPLOY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_snippets_are_of_their_language():
    blocks = re.findall(FENCED, PAGE)
    python = [ast.parse(text) for kind, text in blocks if kind == "python"]
    assert len(python) == 3
    (sources,) = (YAML(typ="safe").load(text)["sources"] for kind, text in blocks if kind == "yaml")
    assert [table["name"] for table in sources[0]["tables"]] == ["quotes"]


def test_the_environment_of_a_cluster_reads_as_the_page_means_it():
    section = PAGE[PAGE.index("## A cluster") : PAGE.index("## Orchestrators")]
    lines = re.findall(r"^(SILVERFOLD\w+)=(.*)$", section, re.MULTILINE)
    environ = {name: "".join(shlex.split(value)) for name, value in lines}
    settings = load_settings(None, environ["SILVERFOLD_ENV"], environ)
    assert settings.warehouse == "s3://lake/silverfold"
    assert settings.spark == tomllib.loads(f"spark = {environ['SILVERFOLD__SPARK']}")["spark"]
