"""The source itself: one test run checks format, lint, types, import rules, names, rooms and what is shipped."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from silverfold.connectors.registry import CONNECTORS

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOME = ROOT / ".src" / "silverfold"
PACKAGES = sorted(entry.name for entry in HOME.iterdir() if entry.is_symlink())

MODULES = {
    ".".join(["silverfold", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): file
    for package in PACKAGES
    for file in sorted((ROOT / package).rglob("*.py"))
}
"""The modules of the product, by name."""

BANNED = frozenset(
    """
    told tells said says saying stands stood standing heard hear foreseen plain aside unchecked lonely spelt spelled
    kept keeps settled waiting
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
"""Words that are no names: each stands for many things, and the field has a term for every one of them."""

RECORDED = {"pipelines/storage/companions.py": {"aside"}, "pipelines/storage/commit_note.py": {"aside"}}
"""Names that commits record: a contract with the tables there are."""

SMALL = 60
SMALL_ALONE = {
    "silverfold.connectors.sqlitecloud.client.decoded": "public: what users of the client call",
    "silverfold.jobs.__main__": "the entry point, which imports nothing at first",
    "silverfold.jobs.prepare": "one file a command",
    "silverfold.jobs.sbe.__main__": "one file a command",
    "silverfold.jobs.simulate": "one file a command",
}
"""Modules of under 60 lines that at most one other imports, and why they are no part of it."""
SIMULATOR = ".server.command"
"""End of the names of modules that may be small as well: whoever imports a server must not load its options."""

ELSEWHERE = re.compile(r"(?<!SBE 1\.0, )\bchapters? [0-9]|\bthe seed(?:'s| has| calls| are)\b", re.IGNORECASE)
"""References to texts that are not here: a reader has PROTOCOL.md, by its headings, and published standards."""

PUBLIC_ROOMS = ("client", "options", "protocol", "reference")
"""Rooms that other connectors may import. How a connector receives, decodes and serves is its inside."""

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
        if file.is_file() and "__pycache__" not in file.parts and not is_of_the_bundle(file)
    }
    assert shipped == in_source | {f"silverfold/{name}" for name in ("__init__.py", "testing.py", "py.typed")}
    files = {name.removeprefix("silverfold/") for name in shipped}
    assert {"conf/base.toml", "conf/local.toml", "conf/databricks.toml", "conf/README.md"} <= files
    assert {"connectors/deephaven/schema.xml", "connectors/deephaven/PROTOCOL.md"} <= files
    assert {"connectors/sbe/market.xml", "connectors/sbe/PROTOCOL.md"} <= files
    assert "connectors/sqlitecloud/PROTOCOL.md" in files
    assert {"jobs/metrics/alerts.yml", "jobs/metrics/dashboard.json"} <= files


def is_of_the_bundle(file: Path) -> bool:
    """Return whether a file belongs to the bundle for Databricks, which carries the wheel."""
    return file.is_relative_to(ROOT / "jobs" / "databricks") and file.suffix != ".py"


def shipped_by(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def pins(extra: str) -> dict[str, Version]:
    """Return the exact versions of an extra, by package."""
    found = map(Requirement, PROJECT["project"]["optional-dependencies"][extra])
    return {each.name: Version(str(each.specifier).removeprefix("==")) for each in found}


def test_installing_it_replaces_no_package_of_a_cluster():
    base = {each.name: each.specifier for each in map(Requirement, PROJECT["project"]["dependencies"])}
    assert not {"pyspark", "delta-spark"} & set(base)
    for name, version in [*pins("lowest").items(), *pins("spark").items()]:
        assert name in {"pyspark", "delta-spark"} or version in base[name], name
    for name, version in pins("lowest").items():
        bounds = {str(each) for each in base.get(name, [])}
        assert name in {"pyspark", "delta-spark"} or f">={version.major}.{version.minor}" in bounds, name


COMES_WITH = {"py4j": "pyspark", "pydantic_core": "pydantic"}
"""Packages that are imported and come with a declared one, which is made of them."""


def test_every_package_that_is_imported_is_declared():
    extras = PROJECT["project"]["optional-dependencies"]
    of_tests = {"dev", "test", "nightly", "interop", "lowest"}
    given = [line for name in extras if name not in of_tests for line in extras[name]]
    declared = {canonicalize_name(Requirement(line).name) for line in [*PROJECT["project"]["dependencies"], *given]}
    owners = packages_distributions()
    imported = {name.split(".")[0] for file in MODULES.values() for name in names_in(file).imported}
    others = imported - sys.stdlib_module_names - {"silverfold"}
    undeclared = {
        name for name in others - set(COMES_WITH) if not declared & set(map(canonicalize_name, owners.get(name, [])))
    }
    assert undeclared == set()


def test_ci_runs_the_readmes_test_command():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python3\.11 -m venv .*$", readme, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [command for command in commands if command in ci] == [
        "python3.11 -m venv .venv && .venv/bin/pip install --quiet --editable '.[dev]' && .venv/bin/pytest"
    ]


def test_every_module_opens_with_what_it_is_for():
    silent = [
        shown(module)
        for package in PACKAGES
        for module in (ROOT / package).rglob("*.py")
        if not module.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []


def test_no_module_is_longer_than_400_lines():
    folders = [ROOT / package for package in [*PACKAGES, "tests"]]
    modules = [module for folder in folders for module in folder.rglob("*.py")]
    lengths = {shown(module): module.read_text(encoding="utf-8").count("\n") for module in modules}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_texts_refer_to_what_a_reader_has():
    files = [file for folder in [*PACKAGES, "tests"] for file in sorted((ROOT / folder).rglob("*.*"))]
    found = {
        shown(file): ELSEWHERE.findall(file.read_text(encoding="utf-8"))
        for file in files
        if file.suffix in {".py", ".md"}
    }
    assert {file: texts for file, texts in found.items() if texts} == {}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Names(NamedTuple):
    """Names in a file."""

    bound: frozenset[str]
    """What it gives: functions, classes, parameters, variables and attributes."""
    imported: frozenset[str]
    """Modules and their members."""


@cache
def names_in(file: Path) -> Names:
    """Read a file once for all tests; to keep its syntax tree would take longer than to read it again."""
    bound, imported = set(), set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.arg(arg=name):
                bound.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                bound.add(name)
            case ast.ImportFrom():
                assert not node.level, f"{file}: relative imports hide where a name comes from"
                imported |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
            case ast.Import():
                imported |= {each.name for each in node.names}
    return Names(frozenset(bound), frozenset(imported))


def test_names_are_those_of_the_field():
    files = [file for folder in [*PACKAGES, "tests"] for file in sorted((ROOT / folder).rglob("*.py"))]
    bad = {
        str(file.relative_to(ROOT)): {name for name in names_in(file).bound if name.strip("_") in BANNED}
        for file in files
    }
    assert {file: names for file, names in bad.items() if names} == RECORDED
    assert [shown(file) for file in files if file.stem.removeprefix("test_") in BANNED] == []


def test_a_folder_has_at_most_16_modules():
    counts = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in {f.parent for f in MODULES.values()}
    }
    del counts["jobs"]  # one for each command
    assert {folder: count for folder, count in counts.items() if count > 16} == {}


def test_a_small_module_has_several_importers_or_a_reason():
    imports = {name: names_in(file).imported for name, file in MODULES.items()}
    alone = {
        name
        for name, file in MODULES.items()
        if file.name != "__init__.py"
        and not name.endswith(SIMULATOR)
        and file.read_text(encoding="utf-8").count("\n") < SMALL
        and sum(name in imported for imported in imports.values()) <= 1
    }
    assert alone == set(SMALL_ALONE)


def test_everything_is_imported_as_silverfold():
    files = [*MODULES.values(), *sorted((ROOT / "tests").rglob("*.py"))]
    bare = {
        str(file.relative_to(ROOT)): {name for name in names_in(file).imported if name.split(".")[0] in PACKAGES}
        for file in files
    }
    assert {file: names for file, names in bare.items() if names} == {}


def test_no_connector_imports_another_ones_inside():
    for name, file in MODULES.items():
        _, package, *rest = name.split(".")
        if package != "connectors" or not rest or rest[0] not in CONNECTORS:
            continue
        others = tuple(f"silverfold.connectors.{other}." for other in CONNECTORS if other != rest[0])
        taken = {each for each in names_in(file).imported if each.startswith(others)}
        assert {each for each in taken if each.split(".")[3] not in PUBLIC_ROOMS} == set(), name


def test_every_law_names_tests_that_are_there():
    page = (ROOT / "tests" / "LAWS.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/\S+\.py)(?:::(\w+))?`", page)
    assert len(named) > 15
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")
