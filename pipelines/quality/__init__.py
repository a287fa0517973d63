"""Judges the rows of silver tables by their rules, apart from builds: `judged_rows`, `check`, `suites`."""
