"""Judges the rows of silver tables by their rules, apart from builds: `judged_rows`, `check`, `suites`."""

import os

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # else Great Expectations, once imported, reports each run to its makers
