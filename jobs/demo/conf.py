"""Writes the settings of the demo in the form of user settings: ``settings.toml`` and ``feeds/demo.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from silverfold.conf.secrets import Secret
from silverfold.jobs.common.context import Invocation
from silverfold.jobs.demo.tables import TABLES, DemoTable

FEED = "demo"


def write_conf(run: Invocation, home: Path, address: str) -> Invocation:
    """Write ``home``/conf for a source at ``address``, and return an invocation that uses only these settings.

    The user's Spark options are copied, since Spark may not start without them. The user's warehouse and feeds are not,
    whether from files or from environment variables.

    Raises:
        ConfigError: One of the user's settings is invalid.
    """
    conf = home / "conf"
    (conf / "feeds").mkdir(parents=True)
    settings = _settings(home / "warehouse", run.settings().spark)
    (conf / "settings.toml").write_text("\n".join(settings) + "\n", encoding="utf-8")
    (conf / "feeds" / f"{FEED}.toml").write_text("\n".join(_feed(address)) + "\n", encoding="utf-8")
    environ = {name: value for name, value in run.environ.items() if not name.upper().startswith("SILVERFOLD_")}
    return Invocation(conf_dir=conf, env=run.env, environ=environ)


def _settings(warehouse: Path, spark: Mapping[str, str | Secret]) -> Iterator[str]:
    yield f"warehouse = {_quoted(str(warehouse))}"
    yield ""
    yield "[spark]"
    for name, value in spark.items():
        literal = _quoted(value) if isinstance(value, str) else _reference(value)
        yield f"{_quoted(name)} = {literal}"


def _reference(secret: Secret) -> str:
    where = {"env": secret.env} if secret.env is not None else {"file": secret.file}
    return "{ " + ", ".join(f"{name} = {_quoted(str(value))}" for name, value in where.items()) + " }"


def _feed(address: str) -> Iterator[str]:
    yield 'connector = "deephaven"'
    yield f"address = {_quoted(address)}"
    for name, table in TABLES.items():
        yield ""
        yield f"[tables.{name}]"
        yield from _table(table)


def _table(table: DemoTable) -> Iterator[str]:
    yield f"source = {_quoted(table.source)}"
    yield 'mode = "snapshot_with_updates"'
    if table.keys:
        yield f"keys = {json.dumps(table.keys)}"
    yield from table.settings


def _quoted(text: str) -> str:
    """Return a string as a TOML literal, which for these strings is the JSON literal."""
    return json.dumps(text, ensure_ascii=False)
