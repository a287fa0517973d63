"""Puts off the import of pandas until somebody asks for a DataFrame."""

from __future__ import annotations

import sys

import pyarrow as pa


class _NotFound:
    """Finds no pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas; leave all else to others."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_pandas_later() -> None:
    """Let pyarrow look for pandas now, in vain; it looks again for the first DataFrame.

    With its first value pyarrow looks whether there is a pandas, by importing it: a third of the time of a build that
    finds nothing new (0.64 of the time without, in pairs). For commands only: a program's own Series with NaN would
    become arrays with NaN, where pyarrow makes NULL of it once it knows pandas.
    """
    if "pandas" in sys.modules:
        return
    finder = _NotFound()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(True)
    finally:
        sys.meta_path.remove(finder)
