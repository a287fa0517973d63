"""The source itself: one test run checks format, lint, types, import rules and what is shipped."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOME = ROOT / ".src" / "silverfold"
PACKAGES = sorted(entry.name for entry in HOME.iterdir() if entry.is_symlink())

pytestmark = pytest.mark.house


@pytest.mark.parametrize("command", ["ruff format --check .", "ruff check .", "lint-imports", "mypy"])
def test_the_source_keeps_the_rules(command):
    tool, *arguments = command.split()
    done = subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_ships_every_file_of_the_packages_and_nothing_else(tmp_path):
    def built(kind: str, source: Path, folder: Path) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        (file,) = folder.iterdir()
        return file

    with tarfile.open(built("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.name.startswith("silverfold-"))
    shipped = shipped_by(built("wheel", ROOT, tmp_path / "wheel"))
    assert shipped_by(built("wheel", unpacked, tmp_path / "again")) == shipped
    in_source = {
        f"silverfold/{file.relative_to(ROOT)}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert shipped == in_source | {"silverfold/__init__.py", "silverfold/py.typed"}
    files = {name.removeprefix("silverfold/") for name in shipped}
    assert {"conf/base.toml", "conf/local.toml", "conf/databricks.toml", "conf/README.md"} <= files
    assert {"connectors/deephaven/schema.xml", "connectors/deephaven/PROTOCOL.md"} <= files
    assert {"connectors/sbe/market.xml", "connectors/sbe/PROTOCOL.md"} <= files
    assert "connectors/sqlitecloud/PROTOCOL.md" in files


def shipped_by(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_ci_runs_the_readmes_test_command():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python3\.11 -m venv .*$", readme, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [command for command in commands if command in ci] == [
        "python3.11 -m venv .venv && .venv/bin/pip install --quiet --editable '.[dev]' && .venv/bin/pytest"
    ]


def test_every_module_opens_with_what_it_is_for():
    silent = [
        str(module.relative_to(ROOT))
        for package in PACKAGES
        for module in (ROOT / package).rglob("*.py")
        if not module.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []


def test_no_module_is_longer_than_400_lines():
    folders = [ROOT / package for package in [*PACKAGES, "tests"]]
    modules = [module for folder in folders for module in folder.rglob("*.py")]
    lengths = {str(module.relative_to(ROOT)): module.read_text(encoding="utf-8").count("\n") for module in modules}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
