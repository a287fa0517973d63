"""The bundle for Databricks as its CLI reads it: one mapping, variables replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

BUNDLE: Final = Path(__file__).parents[2] / "jobs" / "databricks"
VALUES: Final = {
    "var.warehouse": "abfss://lake@account.dfs.core.windows.net/silverfold",
    "var.node_type": "Standard_D4ds_v5",
    "workspace.file_path": "/Workspace/files",
}
"""Values of the variables that have no default, and of the workspace."""


def yaml(file: Path) -> dict[str, Any]:
    """Return the content of a YAML file."""
    found = YAML(typ="safe").load(file)
    assert isinstance(found, dict)
    return found


def jobs(values: Mapping[str, Any] = VALUES) -> dict[str, dict[str, Any]]:
    """Return the jobs of the bundle by key, with variables replaced."""
    bundle = yaml(BUNDLE / "databricks.yml")
    defaults = {f"var.{name}": each["default"] for name, each in bundle["variables"].items() if "default" in each}
    found: dict[str, dict[str, Any]] = {}
    for pattern in bundle["include"]:
        for file in sorted(BUNDLE.glob(pattern)):
            found |= yaml(file)["resources"]["jobs"]
    return {key: resolved(job, {**defaults, **values}) for key, job in found.items()}


def resolved(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a value with ``${name}`` replaced at any depth."""
    match value:
        case dict():
            return {key: resolved(each, values) for key, each in value.items()}
        case list():
            return [resolved(each, values) for each in value]
        case str() if whole := re.fullmatch(r"\$\{([\w.]+)\}", value):
            return resolved(values[whole[1]], values)
        case str():
            return re.sub(r"\$\{([\w.]+)\}", lambda name: str(resolved(values[name[1]], values)), value)
    return value
