"""An archive of the classes that Spark loads at every start, which a JVM maps into memory instead.

``silverfold prepare`` makes it, and each JVM that this process starts uses it if it exists: on two cores a start costs
4.3 seconds of processor time with it, 7.9 without. Java itself refuses an archive of another Java, or of JAR files that
have changed since, and starts without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from silverfold.pipelines.spark.jars import CLASS_PATH

JVM_OPTIONS = "spark.driver.extraJavaOptions"

_USED, _MADE = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="
_QUIET = "-Xlog:cds*=off"
"""Java would list every class that cannot be archived, and report an archive that does not fit."""


def archive_path(options: Mapping[str, str], java: str, environ: Mapping[str, str]) -> Path:
    """Return the path of the archive for JVMs with such options, whether or not it exists.

    Args:
        options: Spark's.
        java: Output of ``java -version``.
    """
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    identity = "\n".join([java, version("pyspark"), options.get(CLASS_PATH, "")])
    return cache / "silverfold" / f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"


def using_archive(options: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Return the options that make a JVM use an archive: none if it does not exist, or the options name their own."""
    if any(word in options.get(JVM_OPTIONS, "") for word in (_USED, _MADE)) or not archive.is_file():
        return {}
    return _with(options, f"{_USED}{archive}")


def making_archive(options: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Return the options that make a JVM write an archive as it ends."""
    return _with(options, f"{_MADE}{archive}")


def _with(options: Mapping[str, str], option: str) -> dict[str, str]:
    return {JVM_OPTIONS: " ".join(filter(None, [options.get(JVM_OPTIONS), option, _QUIET]))}
