"""A new connector is its folder and its line in the registry: everything else takes it from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REGISTRY_LINE = 'from silverfold.connectors.registry import CONNECTORS\n\nCONNECTORS["toy"] = "toy.connector"\n'
FEED = """
connector = "toy"

[options]
lines = {lines}

[tables.all_lines]
source = "lines"
letters = "upper"
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder with the toy's package, a module that adds its line, and the settings of a feed."""
    shutil.copytree(ROOT / "tests" / "support" / "toy", tmp_path / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "toy_line.py").write_text(REGISTRY_LINE, encoding="utf-8")
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds/plaything.toml").write_text(FEED.format(lines=3), encoding="utf-8")
    return tmp_path


def run(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the toy's package beside ours."""
    path = os.pathsep.join(filter(None, [str(house), str(ROOT / ".src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "SILVERFOLD__WAREHOUSE": str(house / "lake")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


COMMANDS = """
import sys, toy_line, silverfold.jobs.cli
for line in sys.argv[1:]:
    try:
        silverfold.jobs.cli.main(line.split())
    except SystemExit as left:
        print("exit code", left.code)
"""


def silverfold(house: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run command lines one after another in one process; the exit code of each follows its output."""
    return run(house, "-c", COMMANDS, *lines)


def test_its_feeds_are_checked_by_its_own_models(house: Path) -> None:
    (house / "wrong/feeds").mkdir(parents=True)
    (house / "wrong/feeds/plaything.toml").write_text(FEED.format(lines='"many"'), encoding="utf-8")
    done = silverfold(house, f"--conf {house} config check", f"--conf {house}/wrong config check")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["plaything: toy at its default address", "  all_lines: lines, every row as it came"]
    assert [line for line in lines if line.startswith("exit code")] == ["exit code 0", "exit code 2"]
    assert done.stderr.startswith("silverfold: ")
    assert "options.lines: found 'many', allowed: a whole number" in done.stderr


def test_its_simulator_is_listed_and_runs(house: Path) -> None:
    done = silverfold(house, "simulate --help", "simulate toy --help", "simulate toy --lines 3")
    listed, helped, printed, _ = done.stdout.split("exit code 0\n")
    assert re.search(r"│ toy +Print the lines of a toy\. +│", listed)
    assert "Usage: silverfold simulate toy [OPTIONS]" in helped
    assert re.search(r"--lines .* Number of lines\.", helped)
    assert printed == "line 0\nline 1\nline 2\n"


def test_the_page_of_settings_has_its_section(house: Path) -> None:
    script = (
        "import toy_line\nfrom tests.settings_page import PAGE, with_sections\nprint(with_sections(PAGE.read_text()))"
    )
    page = run(house, "-c", script).stdout
    assert (
        """
### connector = "toy"

`address` is empty: a toy is its own source.

| key | default | meaning |
|---|---|---|
| `options.lines` | none | Number of lines that the source has. |
| `tables.<table>.letters` | `"lower"` | Case of the letters: `upper` or `lower`. |

Lines are only ever added.

<!-- connectors: end -->
"""
        in page
    )


def test_the_conformance_suite_covers_it(house: Path) -> None:
    suite = ["-m", "pytest", "-q", "-n0", "-p", "toy_line", "-p", "no:cacheprovider"]
    of_files_here = "golden or readme"  # that lie in this repository
    chosen = f"toy and not ({of_files_here})"
    done = run(house, *suite, "-k", chosen, "tests/connectors/test_conformance.py")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^10 passed, \d+ deselected", done.stdout, re.MULTILINE)
