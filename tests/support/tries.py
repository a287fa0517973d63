"""How often dear properties are tried, where others near to them are tried as well."""

from __future__ import annotations

from hypothesis import settings

half = settings(max_examples=max(12, settings().max_examples // 2))
a_third = settings(max_examples=max(12, settings().max_examples // 3))
