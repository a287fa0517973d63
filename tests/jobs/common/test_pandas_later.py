"""A build that finds nothing new loads neither pandas nor a parser of SQL; both are there when they are needed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from silverfold.jobs.common.pandas_later import import_pandas_later
import_pandas_later()
import silverfold.pipelines.applying.run
import silverfold.pipelines.reading.status
print(sorted({"pandas", "sqlglot"} & set(sys.modules)))
import pyarrow as pa
print(pa.table({"a": [1, None]}).to_pandas()["a"].tolist(), pa.array([1.5, None]).to_pandas().tolist())
import_pandas_later()
"""


def test_pandas_is_loaded_for_the_first_dataframe():
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=120)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "[1.0, nan] [1.5, nan]"], "")
