"""Hypothesis example counts for expensive properties that related properties cover as well."""

from __future__ import annotations

from hypothesis import settings

half = settings(max_examples=max(12, settings().max_examples // 2))
a_third = settings(max_examples=max(12, settings().max_examples // 3))
