"""Judge silver tables by expectation suites of Great Expectations, in a project folder ``gx``.

A table's rules are the suite ``<feed>.<table>``, written anew from the settings at each run. Suites of the user's own
are called ``<feed>.<table>.<anything>``; they judge the table as queries see it, and hold what concerns no single row:
uniqueness, row counts, freshness. They are run as copies, ``copy of <feed>.<table>.<anything>``, since the library
writes what it runs. Results and their pages (Data Docs) stay in the folder.

The models here are printed by ``silverfold quality --json``: their names and meanings must not change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, cast

import great_expectations as gx
from great_expectations.checkpoint.actions import UpdateDataDocsAction
from great_expectations.core import ExpectationSuite
from great_expectations.core.batch_definition import BatchDefinition
from great_expectations.data_context.data_context.file_data_context import FileDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.metadata_types import FailureSeverity
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from silverfold.conf.errors import ConfigError, SilverfoldError, StoreUnavailable
from silverfold.conf.text import in_one_line
from silverfold.connectors.base import Feed
from silverfold.pipelines.places import Places
from silverfold.pipelines.quality.check import Verdict, failing_rule
from silverfold.pipelines.quality.judged_rows import JudgedRows, judged_rows
from silverfold.pipelines.report import Report
from silverfold.transforms.expectations import FAILED, Rule, check_rules, rules_of, with_failed_rules

SEVERITY: Final = {
    "fail": FailureSeverity.CRITICAL,
    "quarantine": FailureSeverity.WARNING,
    "warn": FailureSeverity.INFO,
}
"""Severity of an expectation by the action of its rule."""

_LONGEST: Final = 400
"""Characters of an error to quote, at most: Spark's hold the stack of the whole query."""

_SOURCE: Final = "silverfold"
"""Name of our data source in the project."""


class ExpectationResult(Report):
    """One expectation."""

    expectation: str
    """Name of the rule; for a suite of the user's own, the type of expectation and its column, if it has one."""
    severity: str
    """``critical``, ``warning`` or ``info``."""
    success: bool
    unexpected: int | None = None
    """Rows that fail it; null for an expectation of the whole table."""
    error: str | None = None
    """Why it could not be evaluated."""


class SuiteResult(Report):
    """One suite."""

    suite: str
    table: str
    verdict: Verdict
    """``failed`` if a critical expectation is not met; else ``unknown`` if any could not be evaluated."""
    reason: str | None = None
    retryable: bool = False
    """As in `pipelines.quality.check.TableCheck`."""
    delta_version: int | None = None
    expectations: tuple[ExpectationResult, ...] = ()


class Quality(Report):
    """Everything ``silverfold quality --json`` prints."""

    at: datetime
    """When it began."""
    warehouse: str
    feed: str
    passed: bool
    """Every suite passed."""
    docs: str
    """URL of the pages."""
    suites: tuple[SuiteResult, ...]


@dataclass(frozen=True)
class QualityProject:
    """A project of Great Expectations."""

    context: FileDataContext

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the project ``gx`` of a folder, or create it. Takes seconds.

        Raises:
            ConfigError: The library cannot open the project.
        """
        logging.getLogger("great_expectations").setLevel(logging.CRITICAL)  # what it logs is in the results
        try:
            context = gx.get_context(mode="file", project_root_dir=folder)
        except Exception as error:  # whatever the library raises for files that it cannot read
            wanted = f"a folder that can hold a project of Great Expectations, its files whole: {_named(error)}"
            raise ConfigError(file="command line", key="--project", found=str(folder), allowed=wanted) from error
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        return cls(context)

    @property
    def docs(self) -> str:
        """URL of the first page of the results."""
        sites = self.context.get_docs_sites_urls()
        return str(sites[0]["site_url"] or "") if sites else ""

    def run(self, session: SparkSession, places: Places, feed: Feed, tables: Sequence[str]) -> Iterator[SuiteResult]:
        """Yield the result of each suite: for each table that of its rules, then the user's own. Runs Spark jobs.

        A suite of the user's own for a table that the feed has not is ``unknown``.

        Raises:
            ConfigError: The project cannot be written.
        """
        suites = sorted(name for name in self._keys() if name.startswith(f"{feed.name}."))
        for suite in suites:
            table = suite.split(".")[1]
            if table not in feed.tables:
                why = f"feed {feed.name} has no table {table}: rename the suite, or remove it"
                yield SuiteResult(suite=suite, table=table, verdict=Verdict.UNKNOWN, reason=why)
        for name in tables:
            rules = rules_of(feed.tables[name])
            suite = f"{feed.name}.{name}"
            own = [each for each in suites if each.startswith(f"{suite}.")]
            if not rules and not own:
                continue
            try:
                judged = judged_rows(session, places, feed.name, name)
            except SilverfoldError as error:
                yield _unknown(suite, name, error)
                continue
            if judged is None:
                yield SuiteResult(suite=suite, table=name, verdict=Verdict.NOT_BUILT)
                continue
            if rules:
                try:
                    yield self._judged_by_rules(session, suite, name, judged, rules)
                except OSError as error:
                    found = f"{error.filename}: {error.strerror}"
                    wanted = "a folder that can be written"
                    raise ConfigError(file="command line", key="--project", found=found, allowed=wanted) from error
                except SilverfoldError:
                    raise
                except Exception as error:  # whatever the library raises for files that it cannot read
                    why = (
                        f"{_named(error)}: if files called {suite} in `gx` are damaged, remove them: they are made anew"
                    )
                    yield SuiteResult(suite=suite, table=name, verdict=Verdict.UNKNOWN, reason=why)
            for each in own:
                yield self._judged_by_own(each, name, judged)

    def _keys(self) -> dict[str, Any]:
        """Return the key of each suite in the library's store, by name, also of those that cannot be read."""
        keys: list[Any] = self.context.expectations_store.list_keys()
        return {key.name: key for key in keys}

    def _judged_by_rules(
        self, session: SparkSession, suite: str, table: str, judged: JudgedRows, rules: Sequence[Rule]
    ) -> SuiteResult:
        try:
            check_rules(session, judged.row, rules, table=table)
        except SilverfoldError as error:
            return _unknown(suite, table, error)
        self.context.suites.add_or_update(_suite_of(suite, rules))
        named = with_failed_rules(judged.rows, rules)
        met = named.select(*((~F.array_contains(FAILED, rule.name)).alias(rule.name) for rule in rules))
        found = self._result(suite, table, judged.version, met, of_rules=True)
        if found.verdict is not Verdict.UNKNOWN:
            return found
        try:
            return found.model_copy(update={"reason": failing_rule(judged, rules, table)})
        except SilverfoldError as error:
            return _unknown(suite, table, error)

    def _judged_by_own(self, suite: str, table: str, judged: JudgedRows) -> SuiteResult:
        """Judge a table by a copy of a suite of the user's own. Whatever it raises costs the others nothing.

        The library writes each suite that it runs, under the name in it, and without what it does not know. A file of
        the user's is not written.
        """
        try:
            written: Mapping[str, Any] = self.context.expectations_store.get(self._keys()[suite])
            if written["name"] != suite:
                why = f"its name in the file is {written['name']}: make it {suite}, as the place of the file says"
                return SuiteResult(suite=suite, table=table, verdict=Verdict.UNKNOWN, reason=why)
            copy = _copy_of(written)
            if unknown := len(written["expectations"]) - len(copy.expectations):
                why = f"{unknown} of its {len(written['expectations'])} expectations are of a type that is not known"
                return SuiteResult(suite=suite, table=table, verdict=Verdict.UNKNOWN, reason=why)
            self.context.suites.add_or_update(copy)
            found = self._result(copy.name, table, judged.version, judged.table)
            return found.model_copy(update={"suite": suite})
        except Exception as error:  # of a suite that anybody may have written
            return SuiteResult(suite=suite, table=table, verdict=Verdict.UNKNOWN, reason=_named(error))

    def _result(self, suite: str, table: str, version: int, rows: DataFrame, *, of_rules: bool = False) -> SuiteResult:
        """Validate rows by a suite of the project, store the result and its page."""
        stored = self.context.suites.get(suite)
        definition = gx.ValidationDefinition(name=suite, data=self._batch_definition(suite), suite=stored)
        checkpoint = gx.Checkpoint(
            name=suite,
            validation_definitions=[self.context.validation_definitions.add_or_update(definition)],
            actions=[UpdateDataDocsAction(name="pages")],
            result_format={"result_format": "BASIC", "partial_unexpected_count": 0},
        )
        found = self.context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": rows})
        (validation,) = found.run_results.values()
        results: list[Any] = validation.results
        by_id = {each.expectation_config.id: each for each in results}  # those that raised come first
        expectations = tuple(_expectation_result(by_id[each.id], of_rules=of_rules) for each in stored.expectations)
        return SuiteResult(
            suite=suite,
            table=table,
            verdict=_verdict(expectations),
            delta_version=version,
            expectations=expectations,
        )

    def _batch_definition(self, name: str) -> BatchDefinition[Any]:
        """Return the batch definition of a suite's rows, creating it the first time."""
        sources = self.context.data_sources
        source: Any = sources.get(_SOURCE) if _SOURCE in sources.all() else sources.add_spark(_SOURCE)
        if source.type != "spark":
            wanted = f"one whose data source {_SOURCE} is of Spark"
            raise ConfigError(file="command line", key="--project", found=source.type, allowed=wanted)
        known = name in source.get_asset_names()
        asset = source.get_asset(name) if known else source.add_dataframe_asset(name)
        found: Sequence[BatchDefinition[Any]] = asset.batch_definitions
        return found[0] if found else cast("BatchDefinition[Any]", asset.add_batch_definition_whole_dataframe("rows"))


def _suite_of(name: str, rules: Sequence[Rule]) -> ExpectationSuite:
    expectations = [
        ExpectColumnValuesToBeInSet(
            column=rule.name,
            value_set=[True],
            severity=SEVERITY[rule.action],
            description=f"{rule.name}: {rule.condition}",
        )
        for rule in rules
    ]
    return gx.ExpectationSuite(name, expectations=expectations)


def _copy_of(written: Mapping[str, Any]) -> ExpectationSuite:
    """Return a suite of the user's own under a name of ours, without expectations that the library does not know."""
    found = [each.to_json_dict() for each in written["expectations"]]
    expectations = [{name: value for name, value in each.items() if name != "id"} for each in found]
    parameters = written.get("suite_parameters")
    return gx.ExpectationSuite(f"copy of {written['name']}", expectations=expectations, suite_parameters=parameters)


def _expectation_result(found: Any, *, of_rules: bool) -> ExpectationResult:
    config = found.expectation_config
    column = config.kwargs.get("column")
    error = _error_in(found.exception_info)
    return ExpectationResult(
        expectation=column if of_rules else " ".join(filter(None, (config.type, column))),
        severity=config.severity.value,
        success=bool(found.success),
        unexpected=found.result.get("unexpected_count"),
        error=None if error is None else in_one_line(error)[:_LONGEST],
    )


def _verdict(expectations: Sequence[ExpectationResult]) -> Verdict:
    if any(each.severity == "critical" and not each.success and each.error is None for each in expectations):
        return Verdict.FAILED
    return Verdict.UNKNOWN if any(each.error is not None for each in expectations) else Verdict.PASSED


def _error_in(info: Mapping[str, Any]) -> str | None:
    """Return the message of an evaluation that failed. An expectation of several metrics has a mapping of several."""
    each_metric = (
        [info] if "raised_exception" in info else [each for each in info.values() if isinstance(each, Mapping)]
    )
    return next((str(each["exception_message"]) for each in each_metric if each.get("raised_exception")), None)


def _named(error: Exception) -> str:
    return in_one_line(f"{type(error).__name__}: {error}")


def _unknown(suite: str, table: str, error: SilverfoldError) -> SuiteResult:
    return SuiteResult(
        suite=suite,
        table=table,
        verdict=Verdict.UNKNOWN,
        reason=str(error),
        retryable=isinstance(error, StoreUnavailable),
    )
