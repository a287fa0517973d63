"""Checks that silverfold's five packages are its own.

Their names are common in data projects. Another distribution with a package ``transforms`` would silently overwrite
ours, and a folder ``conf`` earlier on the import path would shadow it.
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
    """Return the folder where Python finds a package; None if there is none."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def check_packages(
    home: Path = HOME,
    folder: Callable[[str], Path | None] = folder_of,
    owners: Callable[[], Mapping[str, list[str]]] = packages_distributions,
) -> None:
    """Check that all five packages are in ``home`` and that no other distribution installed files into one.

    Raises:
        ConfigError: The check failed; the error names the package, and the distribution or folder in its way.
    """
    for package in PACKAGES:
        found = folder(package)
        if found is None or found.parent.resolve() != home.resolve():
            raise _in_the_way(home, package, str(found))
    if not any(home.glob("silverfold-*.dist-info")):
        return  # run from a source folder: installers do not write there
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
