"""The settings, as strict pydantic models. `conf.load` reads the files.

A feed's ``options`` and ``tables`` remain raw here: only the connector knows their models (``Connector.Options`` and
``Connector.TableOptions``); `connectors.registry` validates them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from silverfold.conf.files import check_path
from silverfold.conf.names import CHANGE_FEED, HISTORY, TAKEN, caseless, schema_parts
from silverfold.conf.secrets import Secret, revealed
from silverfold.conf.text import without_controls

_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "hdfs")
"""URL schemes of stores that delta-rs supports."""

_MOUNTS: Final = ("/Volumes/", "/dbfs/")
"""Folders under which Databricks mounts stores."""
_NO_MOUNT: Final = (
    "the URL of the external location below it, such as abfss://…, s3://… or gs://…: a volume or a mount cannot "
    "rename a file in one step, so of two writers one loses what it has committed"
)
"""Measured on a volume: where delta-rs is made to write there, two writers lose 17 of 62 rows."""
_UNUSABLE_IN_URLS: Final = "#?"
"""Behind these, delta-rs reads a query or a fragment, and finds no history of the table."""
_UNUSABLE_IN_FOLDERS: Final = "[]^|\\%{}*"
"""delta-rs refuses them in a path, or takes % for an escape where Spark does not; Spark takes {}* for a pattern."""
_LONGEST_PART: Final = 255
"""Bytes of a name in a folder, as most file systems have it."""


class Strict(BaseModel):
    """Base of every settings model: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_DAY: Final = 86_400

Seconds: TypeAlias = Annotated[float, Field(gt=0, le=_DAY, allow_inf_nan=False)]


class Commit(Strict):
    """When a receiver commits to bronze: by time or by bytes, whichever comes first."""

    interval_ms: int = Field(default=200, ge=1, le=600_000)
    max_bytes: int = Field(default=8 << 20, ge=1 << 10, le=1 << 30)
    compact_every: int = Field(default=100, ge=2, le=10_000)


class Reconnect(Strict):
    """Exponential back-off between epochs, in seconds, each delay with full jitter."""

    first: Seconds = 0.2
    longest: Seconds = 30.0
    connect_timeout: Seconds = 10.0


class CutLimits(Strict):
    """Bounds of one cut. A single update is never split, however large."""

    max_frames: int = Field(default=200_000, ge=1, le=1 << 31)
    max_bytes: int = Field(default=1 << 30, ge=1 << 10, le=1 << 40)


class Build(Strict):
    """How jobs run Spark and follow bronze."""

    poll_ms: int = Field(default=200, ge=10, le=1_000 * _DAY)
    tables_at_once: int = Field(default=2, ge=1, le=1_000)
    cut: CutLimits = CutLimits()


class Maintain(Strict):
    """What `silverfold maintain` keeps."""

    bronze_days: float = Field(default=7.0, ge=0, le=36_500, allow_inf_nan=False)
    vacuum_hours: int = Field(default=168, ge=1, le=24 * 36_500)


def _condition(condition: str) -> str:
    from silverfold.conf.conditions import check_condition  # noqa: PLC0415 - slow import, and most commands need no conditions

    return check_condition(condition)


class Expectation(Strict):
    """A rule that rows of a table meet: a condition in SQL, and what is done with a row for which it is not TRUE."""

    condition: Annotated[str, AfterValidator(_condition)]
    action: Literal["warn", "quarantine", "fail"]


UNEXPLAINED: Final = "unexplained"
"""Reason in the side table for an update that waits for its row."""

LATE_PARTIAL: Final = "late_partial"
"""Reason in the side table for a key whose row may lack what late partial updates changed."""


def expanded(pattern: str, allowed: str) -> AfterValidator:
    """Return a validator that requires a full match of a pattern; ``allowed`` is its error message."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(allowed)
        return text

    return AfterValidator(check)


RuleName: TypeAlias = Annotated[
    str, expanded("[A-Za-z][A-Za-z0-9_]*", "a name of letters, digits and _, a letter first")
]

SourceName: TypeAlias = Annotated[str, AfterValidator(without_controls("a name"))]
"""The name of a database, a table or a channel at the source."""

PathText: TypeAlias = Annotated[str, AfterValidator(check_path)]
"""The path of a file."""


def _schema(name: str) -> str:
    if name:
        schema_parts(name)
    return name


class Table(Strict):
    """What every connector's table settings have in common."""

    ROW_SETTINGS: ClassVar[tuple[str, ...]] = ()
    """Settings, besides stream and ``keys``, that determine the table's rows but do not show in its columns."""

    source: SourceName = Field(min_length=1)
    keys: tuple[str, ...] = ()
    on_bad_frame: Literal["hold", "skip"] = "hold"
    on_unexplained: Literal["count", "error"] = "count"
    stored_as_scd_type: Literal[1, 2] = 1
    deletion_vectors: bool | None = None
    change_data_feed: bool | None = None
    cluster_by: Annotated[tuple[str, ...], Field(max_length=4)] | None = None
    expect: dict[RuleName, Expectation] = Field(default_factory=dict)

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Values of `ROW_SETTINGS` as text or lists; with other values the table has other rows."""
        values = {name: getattr(self, name) for name in self.ROW_SETTINGS}
        return {name: list(value) if isinstance(value, tuple) else str(value) for name, value in values.items()}

    @property
    def keeps_history(self) -> bool:
        """Whether every version of a row is stored, besides the current rows."""
        return self.stored_as_scd_type == 2

    @property
    def reserved_names(self) -> frozenset[str]:
        """Lower-case names of our own and of Delta's columns, which the source's columns must not have."""
        side_table = ("_reasons",) if self.expect else ()
        history = HISTORY if self.keeps_history else ()
        change_feed = CHANGE_FEED if self.change_data_feed else ()
        own = ("_op", "_position", "_present", "_last_row_key", "_row_key")
        return TAKEN.union(own, side_table, history, change_feed)

    @model_validator(mode="after")
    def _history_is_of_all_rows(self) -> Self:
        if self.keeps_history and any(rule.action == "quarantine" for rule in self.expect.values()):
            raise ValueError("a rule that quarantines rows cannot go with stored_as_scd_type = 2: use warn or fail")
        return self

    @field_validator("keys", "cluster_by")
    @classmethod
    def _each_is_a_column(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Check columns, also where a connector's own field takes the place of this one."""
        if names and (len(set(map(caseless, names))) < len(names) or not all(map(str.strip, names))):
            raise ValueError("names of columns, each once")
        return names

    @field_validator("expect")
    @classmethod
    def _rules_have_names_of_their_own(cls, rules: dict[str, Expectation]) -> dict[str, Expectation]:
        if len(set(map(caseless, rules))) < len(rules):
            raise ValueError("names that differ in more than upper and lower case")
        for taken in {UNEXPLAINED, LATE_PARTIAL}.intersection(rules):
            raise ValueError(f"no rule can be called {taken}: so is why changes of rows are kept aside")
        return rules


class FeedSettings(Strict):
    """One ``feeds/<feed>.toml``. The feed is called after the file."""

    connector: str
    address: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = Field(min_length=1)
    catalog: Annotated[str, AfterValidator(_schema)] = ""
    commit: Commit = Commit()
    reconnect: Reconnect = Reconnect()

    _file_of: Callable[[tuple[str, ...]], str] | None = PrivateAttr(default=None)

    def file_of(self, path: tuple[str, ...]) -> str:
        """Return the file or environment variable that set the key at ``path``, for messages."""
        return self._file_of(path) if self._file_of else "settings"


class Settings(Strict):
    """Everything that is not a feed's."""

    warehouse: str
    storage_options: dict[str, str | Secret] = Field(default_factory=dict, repr=False)
    spark: dict[str, str | Secret] = Field(default_factory=dict)
    lease: bool = True
    build: Build = Build()
    maintain: Maintain = Maintain()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    feeds: dict[str, FeedSettings] = Field(default_factory=dict)

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("warehouse")
    @classmethod
    def _can_be_addressed(cls, warehouse: str) -> str:
        scheme, separator, rest = warehouse.partition("://")
        if re.match("dbfs:", warehouse, re.IGNORECASE):
            raise ValueError(_NO_MOUNT)
        if separator and scheme not in _SCHEMES:
            raise ValueError(f"a folder, or a URL of {', '.join(_SCHEMES)}")
        if not warehouse.strip() or (separator and not rest):
            raise ValueError("a folder, or a URL with more than its beginning")
        if "@" in rest.partition("/")[0] and not scheme.startswith("abfs"):  # abfs has its container there
            raise PydanticCustomError("secret", "a URL without user or key: storage_options may name secrets")
        if not separator and re.match(r"\w{2,}:", warehouse):
            raise ValueError("a folder, or a URL with :// behind its scheme")
        if warehouse.startswith("~"):
            raise ValueError("a folder whose path is written out: ~ stands for nothing here")
        is_folder = not separator
        path = str(Path(warehouse).absolute()) if is_folder else warehouse
        if scheme == "file" and separator and not rest.startswith("/"):
            raise ValueError("a folder's path: behind file:// there is no host, but the path from / on")
        is_local = is_folder or scheme == "file"
        unusable = _UNUSABLE_IN_URLS + _UNUSABLE_IN_FOLDERS if is_local else _UNUSABLE_IN_URLS
        if refused := sorted({repr(c)[1:-1] for c in path if c in unusable or ord(c) < ord(" ") or c == "\x7f"}):
            kind, where = ("a URL", "it") if separator else ("a folder", f"its path {path!r}")
            raise ValueError(f"{kind} without {' '.join(refused)} in {where}, which delta-rs and Spark read otherwise")
        if is_folder and any(len(os.fsencode(part)) > _LONGEST_PART for part in Path(path).parts):
            raise ValueError(f"a folder none of whose names has more than {_LONGEST_PART} bytes")
        folder = os.path.realpath(rest or path) if is_local else ""
        if f"{folder}/".startswith(_MOUNTS) and sys.platform != "darwin":  # on macOS, /Volumes has other disks
            raise ValueError(_NO_MOUNT)
        return warehouse

    @property
    def needs_leases(self) -> bool:
        """Whether concurrent Spark commits to one table could overwrite each other."""
        return self.lease and self.is_on_s3

    @property
    def is_on_s3(self) -> bool:
        """Whether the warehouse is in an S3 store, Amazon's or another's."""
        return self.warehouse.startswith(("s3://", "s3a://"))

    @property
    def spark_options(self) -> dict[str, str]:
        """Values of ``spark`` that are not secrets and may appear on the command line of a JVM."""
        return {name: value for name, value in self.spark.items() if isinstance(value, str)}

    def spark_secrets(self) -> dict[str, str]:
        """Return the values of ``spark`` that are secrets, reread on each call: do not log or store them.

        Raises:
            ConfigError: A secret is not at its location.
        """
        secrets = {name: value for name, value in self.spark.items() if isinstance(value, Secret)}
        return revealed(secrets, self._environ, "spark")

    def storage(self) -> dict[str, str]:
        """Return ``storage_options`` with secrets revealed, reread on each call: do not log or store it.

        Raises:
            ConfigError: A secret is not at its location.
        """
        return revealed(self.storage_options, self._environ, "storage_options")
