"""Checks that silverfold's five packages are its own.

They are called after the layers of a data project, and so are those of others: a distribution with a package
``transforms`` would overwrite ours without a word, or a folder ``conf`` further up the import path would hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

from conf.errors import ConfigError

PACKAGES = ("conf", "transforms", "connectors", "pipelines", "jobs")
HOME = Path(__file__).parent.parent


def folder_of(package: str) -> Path | None:
    """Return where Python finds a package; None if nowhere."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def check_packages(
    home: Path = HOME,
    folder: Callable[[str], Path | None] = folder_of,
    owners: Callable[[], Mapping[str, list[str]]] = packages_distributions,
) -> None:
    """Pass if all five packages are found in ``home`` and no other distribution installed files into one.

    Raises:
        ConfigError: Names the package, and the distribution or folder that is in the way.
    """
    for package in PACKAGES:
        found = folder(package)
        if found is None or found.parent.resolve() != home.resolve():
            raise _in_the_way(home, package, str(found))
    if not any(home.glob("silverfold-*.dist-info")):
        return  # run from a source folder, where no installer writes
    for package, distributions in owners().items():
        others = sorted(set(distributions) - {"silverfold"})
        if package in PACKAGES and others:
            raise _in_the_way(home, package, f"files of the distribution {', '.join(others)}")


def _in_the_way(home: Path, package: str, culprit: str) -> ConfigError:
    return ConfigError(
        file=str(home / package),
        key=f"package {package}",
        found=culprit,
        allowed="silverfold's own files alone: give it an environment of its own, or start it from another folder",
    )
