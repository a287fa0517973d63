"""Runs cases of the matrix, shrinks failing ones, and gives the command that repeats each."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.matrix.checks import Different
from tests.matrix.life import Life
from tests.matrix.settings import Settings, tamer
from tests.matrix.steps import Build, Step, Update, Upkeep
from tests.matrix.story import LANES, story


@dataclass(frozen=True)
class Case:
    """A story, or a part of one.

    Args:
        lanes: The active lanes.
        without: Numbers of the steps left out.
        short: Use the short story that runs by day.
    """

    settings: Settings
    seed: int
    lanes: tuple[int, ...] = tuple(range(LANES))
    without: tuple[int, ...] = ()
    short: bool = False

    @property
    def steps(self) -> list[Step]:
        return [step for number, step in enumerate(self.story) if number not in self.without]

    @property
    def story(self) -> list[Step]:
        """All steps, including those left out."""
        return story(self.settings, self.seed, self.lanes, short=self.short)

    @property
    def command(self) -> str:
        """Command that repeats it."""
        parts = [f"python -m tests.matrix --seed {self.seed} --settings '{self.settings}'"]
        if len(self.lanes) < LANES:
            parts.append(f"--lanes {','.join(map(str, self.lanes))}")
        if self.without:
            parts.append(f"--without {','.join(map(str, self.without))}")
        return " ".join([*parts, *(["--short"] if self.short else [])])


@dataclass(frozen=True)
class Failure:
    """Failure of a case.

    Args:
        kind: Equal for equal mistakes.
    """

    case: Case
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}\n  {self.case.command}\n{self.detail}"


def run_case(spark: SparkSession, case: Case) -> Failure | None:
    """Run a case in its own warehouse; return the failure, if any. Runs Spark jobs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            Life(spark, Path(folder), case.settings, case.seed).live(case.steps)
        except Different as different:
            return Failure(case, different.kind, str(different)[:1500])
        except Exception as error:
            trace = "".join(traceback.format_exception(error)[-6:])
            return Failure(case, type(error).__name__, f"{error}"[:600] + "\n" + trace[-1200:])
    return None


def shrunk(failure: Failure, run: Callable[[Case], Failure | None], tries: int) -> Failure:
    """Return the failure of a smaller case of the same kind. Runs at most ``tries`` cases."""
    left = tries
    while True:
        for case in _smaller(failure.case):
            if not left:
                return failure
            left -= 1
            found = run(case)
            if found is not None and found.kind == failure.kind:
                failure = found
                break
        else:
            return failure


def _smaller(case: Case) -> Iterator[Case]:
    """Yield cases reduced by one element, largest elements first."""
    half = len(case.lanes) // 2
    if half:
        yield replace(case, lanes=case.lanes[:half])
        yield replace(case, lanes=case.lanes[half:])
    for settings in tamer(case.settings):
        if not case.without:  # step numbers are valid for these settings only
            yield replace(case, settings=settings)
    for number, step in reversed(list(enumerate(case.story))):
        if isinstance(step, Update | Build | Upkeep) and number not in case.without:
            yield replace(case, without=tuple(sorted((*case.without, number))))
