"""Loads the settings from layers of TOML files and environment variables; later layers win key by key.

===  ==================================  ===========================================================
1    ``base.toml``                       packaged; applies everywhere
2    ``<env>.toml``                      packaged: ``local``, ``cluster``, ``databricks``
3    ``DIR/settings.toml``               the user's, if it exists
4    ``DIR/feeds/<feed>.toml``           one per feed, named after the file
5    ``SILVERFOLD__WAREHOUSE`` and such  environment; ``__`` separates nested keys
===  ==================================  ===========================================================

The value of a variable is parsed as TOML if it is a number, true or false, a quoted string, an array or an inline
table, and is text otherwise. Tables are merged; other values are replaced. The Spark settings of ``local`` do not apply
if Spark's master is not local, or if spark-submit started the process.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from silverfold.conf.errors import ConfigError
from silverfold.conf.files import read_whole
from silverfold.conf.model import FeedSettings, Settings
from silverfold.conf.names import caseless
from silverfold.conf.validate import together, validated

PREFIX = "SILVERFOLD__"
NAME = re.compile(r"(?!.{201})[A-Za-z]([A-Za-z0-9]|_(?!_))*")
"""Pattern for names of feeds and silver tables: valid both as a folder name and as an SQL name.

A folder's name has at most 255 bytes on most systems, `__history` and the like included.

Double underscores are reserved: ``__`` separates the keys of a variable, and ``__history`` is a folder suffix.
"""

_NAME_RULE = "letters, digits and single underscores, a letter first, 200 at most"
_TOML_MISSPELT = re.compile(r"\.(?!toml$)[Tt][Oo][Mm][Ll](\.txt)?$")
_ONE_CASE = "a name that no other has in another letter case: neither SQL nor every disk could tell them apart"


class Layered:
    """A table built from layers, which records the source of each key."""

    def __init__(self, source: str) -> None:
        self.raw: dict[str, Any] = {}
        self._last = source
        self._sources: dict[tuple[str, ...], str] = {}

    def add(self, raw: Mapping[str, Any], source: str) -> None:
        """Merge a table over the previous layers. ``source`` is the file's name, for messages."""
        self._last = source
        self._merge(self.raw, raw, source, ())

    def set(self, path: tuple[str, ...], value: object, source: str) -> None:
        """Set one value over the previous layers. Keys match case-insensitively; new keys are lower-cased."""
        exact: tuple[str, ...] = ()
        table: Any = self.raw
        for name in path:
            names = table if isinstance(table, Mapping) else {}
            exact += (next((known for known in names if known.lower() == name.lower()), name.lower()),)
            table = names.get(exact[-1])
        for name in reversed(exact):
            value = {name: value}
        assert isinstance(value, dict)
        self._merge(self.raw, value, source, ())

    def source_of(self, path: tuple[str, ...]) -> str:
        """Return the source of a key; of a missing key, the source of its table."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._sources:
                return self._sources[path[:length]]
        return self._last

    def _merge(self, into: dict[str, Any], raw: Mapping[str, Any], source: str, above: tuple[str, ...]) -> None:
        for name, value in raw.items():
            path = (*above, name)
            self._sources[path] = source
            if isinstance(value, Mapping) and isinstance(into.get(name), dict):
                self._merge(into[name], value, source, path)
            elif isinstance(value, Mapping):
                into[name] = {}
                self._merge(into[name], value, source, path)
            else:
                into[name] = value


def load_settings(conf_dir: Path | None, env: str, environ: Mapping[str, str]) -> Settings:
    """Return the validated settings of all layers. Connector-specific settings are validated when a feed is opened.

    Args:
        conf_dir: Directory with ``settings.toml`` and ``feeds/``, either of which may be missing; None for none.
        env: Name of the packaged layer.
        environ: Environment variables; those that do not begin with ``SILVERFOLD__`` are ignored.

    Raises:
        ConfigError: A file is not TOML, or a key is invalid. ``others`` has the further errors, from all files.
    """
    settings, mistakes = look_at_settings(conf_dir, env, environ)
    if mistakes:
        raise together(mistakes)
    return settings


def look_at_settings(
    conf_dir: Path | None, env: str, environ: Mapping[str, str]
) -> tuple[Settings, Sequence[ConfigError]]:
    """Return the settings as `load_settings` does, and their errors; feeds are included without their invalid parts.

    Raises:
        ConfigError: A file is not TOML, or is missing.
    """
    layers = _files(conf_dir, env)
    feeds = dict(_feeds(conf_dir))
    _environment(layers, feeds, environ)
    _without_local_spark(layers, environ)
    mistakes: list[ConfigError] = []
    loaded: dict[str, FeedSettings] = {}
    for name, layered in feeds.items():
        feed, wrong = _feed(name, layered)
        loaded |= {} if feed is None else {name: feed}
        mistakes += wrong
    try:
        settings = validated(Settings, layers.raw, file=layers.source_of)
    except ConfigError as error:
        mistakes.insert(0, error)
        settings = Settings.model_construct(warehouse="")
    folder = None if mistakes or "://" in settings.warehouse else Path(settings.warehouse)
    if folder is not None and any(each.exists() and not each.is_dir() for each in (folder, *folder.parents)):
        source, allowed = layers.source_of(("warehouse",)), "a folder, in no file, or a URL"
        mistakes.append(ConfigError(file=source, key="warehouse", found=settings.warehouse, allowed=allowed))
    settings = settings.model_copy(update={"feeds": loaded})
    settings._environ = environ
    return settings, mistakes


def _files(conf_dir: Path | None, env: str) -> Layered:
    packaged = {file.name.removesuffix(".toml"): file for file in _packaged()}
    environments = sorted(packaged.keys() - {"base"})
    if env not in environments:
        raise ConfigError(file="command line", key="--env", found=env, allowed=", ".join(environments))
    layers = Layered(_named(env))
    for name in ("base", env):
        layers.add(_read(packaged[name], _named(name)), _named(name))
    if conf_dir is None:
        return layers
    if not conf_dir.is_dir():
        raise ConfigError(file="command line", key="--conf", found=str(conf_dir), allowed="an existing folder")
    for name in (f"{layer}.toml" for layer in sorted(packaged)):
        if (conf_dir / name).is_file():  # it would be silently ignored
            allowed = "settings.toml, feeds/<feed>.toml"
            raise ConfigError(file=str(conf_dir), key="a file's name", found=name, allowed=allowed)
    own = conf_dir / "settings.toml"
    if not own.exists() and not (conf_dir / "feeds").exists():
        allowed = "a folder with settings.toml or feeds/<feed>.toml"
        raise ConfigError(file="command line", key="--conf", found=str(conf_dir), allowed=allowed)
    if own.exists():
        raw = _read(own, str(own))
        if "feeds" in raw:
            raise ConfigError(
                file=str(own), key="feeds", found="a table", allowed="one file for each: feeds/<feed>.toml"
            )
        layers.add(raw, str(own))
    return layers


def _without_local_spark(layers: Layered, environ: Mapping[str, str]) -> None:
    """Remove the Spark settings of ``local`` if Spark runs elsewhere, according to another layer or spark-submit."""
    spark = layers.raw.get("spark")
    submitted = "PYSPARK_GATEWAY_PORT" in environ
    if isinstance(spark, dict) and (submitted or not str(spark.get("spark.master", "local")).startswith("local")):
        for name in [name for name in spark if layers.source_of(("spark", name)) == _named("local")]:
            del spark[name]


def _named(env: str) -> str:
    """Return the name of a packaged layer for messages."""
    return f"{env}.toml of silverfold"


def _packaged() -> list[Traversable]:
    return [file for file in resources.files("silverfold.conf").iterdir() if file.name.endswith(".toml")]


def _feeds(conf_dir: Path | None) -> Iterator[tuple[str, Layered]]:
    if conf_dir is None:
        return
    if (conf_dir / "feeds").exists() and not (conf_dir / "feeds").is_dir():
        raise ConfigError(file=str(conf_dir), key="feeds", found="a file", allowed="a folder: feeds/<feed>.toml")
    files = sorted((conf_dir / "feeds").glob("*.toml"))
    for other in sorted((conf_dir / "feeds").glob("*")):
        if _TOML_MISSPELT.search(other.name):
            raise ConfigError(
                file=str(other), key="the file's name", found=other.name, allowed="a name that ends with .toml"
            )
    for again in _again(file.stem for file in files):
        raise ConfigError(file=str(conf_dir / "feeds"), key="the file's name", found=again, allowed=_ONE_CASE)
    for file in files:
        layered = Layered(str(file))
        layered.add(_read(file, str(file)), str(file))
        yield file.stem, layered


def _feed(name: str, layered: Layered) -> tuple[FeedSettings | None, list[ConfigError]]:
    """Return a feed's settings without the invalid parts, and the errors; None if too little is valid."""
    tables = layered.raw.get("tables")
    keys = {"the file's name": name}
    if isinstance(tables, dict):
        keys |= {f"tables.{table}": table for table in tables}
    mistakes = [
        ConfigError(file=layered.source_of(tuple(key.split("."))), key=key, found=found, allowed=_NAME_RULE)
        for key, found in keys.items()
        if not NAME.fullmatch(found)
    ]
    mistakes += [
        ConfigError(file=layered.source_of(("tables", table)), key=f"tables.{table}", found=table, allowed=_ONE_CASE)
        for table in _again(tables if isinstance(tables, dict) else ())
    ]
    right = layered.raw
    for _ in range(2):
        try:
            feed = validated(FeedSettings, right, file=layered.source_of)
        except ConfigError as error:
            if right is layered.raw:
                mistakes.append(error)
            wrong = {each.key.partition(".")[0] for each in (error, *error.others)}
            right = {key: value for key, value in right.items() if key not in wrong}
        else:
            feed._file_of = layered.source_of
            return feed, mistakes
    return None, mistakes


def _again(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that differ from an earlier one only in case."""
    seen = set[str]()
    for name in names:
        if caseless(name) in seen:
            yield name
        seen.add(caseless(name))


def _read(file: Traversable, shown: str) -> dict[str, Any]:
    try:
        octets = read_whole(file) if isinstance(file, Path) else file.read_bytes()
        return tomllib.loads(octets.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).removesuffix(")").partition(" (at ")
        raise ConfigError(file=shown, key=where or "the whole file", found=what, allowed="TOML") from error
    except RecursionError as error:
        raise ConfigError(
            file=shown, key="the whole file", found="values too deep in others", allowed="TOML"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(file=shown, key=f"byte {error.start}", found="other bytes", allowed="UTF-8") from error
    except OSError as error:
        raise ConfigError(file=shown, key="the whole file", found=error.strerror, allowed="a readable file") from error


def _environment(layers: Layered, feeds: dict[str, Layered], environ: Mapping[str, str]) -> None:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        source, value = f"environment variable {variable}", _value(environ[variable])
        path = tuple(variable.removeprefix(PREFIX).split("__"))
        if path[0].lower() != "feeds":
            layers.set(path, value, source)
            continue
        given = path[1].lower() if len(path) > 1 else ""
        name = next((feed for feed in feeds if feed.lower() == given), None)
        if name is None or len(path) < 3:
            shown = f"{PREFIX}FEEDS__<feed>__<key>, with a feed of {', '.join(sorted(feeds)) or 'none yet'}"
            raise ConfigError(file="environment", key=variable, found=given or None, allowed=shown)
        feeds[name].set(path[2:], value, source)


def _value(text: str) -> object:
    """Parse a variable's value. Dates and the like remain text."""
    try:
        value = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    found = value["value"]
    allowed = isinstance(found, bool | int | str | list | dict) or (isinstance(found, float) and math.isfinite(found))
    return found if allowed and len(value) == 1 else text
