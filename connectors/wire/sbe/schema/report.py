"""Collects mistakes in a schema, so that one run reports all of them (codes: Exx errors, Wxx warnings).

After an error, reading continues with a stand-in value; `Report.stop` ends the pass if there were any.
"""

from __future__ import annotations

import re

from silverfold.conf.errors import SchemaError
from silverfold.connectors.wire.sbe.schema.document import Element
from silverfold.connectors.wire.sbe.schema.primitives import integer

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


class Report:
    """Errors and warnings, in the order they were found.

    Args:
        accept: Codes of errors to report as warnings, such as ``E14`` for an enum that lists its null value.
        refuse: Codes of warnings to report as errors.
    """

    def __init__(self, *, accept: frozenset[str] = frozenset(), refuse: frozenset[str] = frozenset()) -> None:
        self.warnings: list[str] = []
        self._errors: list[SchemaError] = []
        self._accept = accept
        self._refuse = refuse

    def error(self, code: str, element: Element, detail: str) -> None:
        """Report a broken rule at an element."""
        if code in self._accept:
            self._warn(code, element, detail)
        else:
            self._errors.append(SchemaError(detail, file=element.file, line=element.line, code=code))

    def warn(self, code: str, element: Element, detail: str) -> None:
        """Report something that works but is discouraged."""
        if code in self._refuse:
            self.error(code, element, detail)
        else:
            self._warn(code, element, detail)

    def _warn(self, code: str, element: Element, detail: str) -> None:
        self.warnings.append(f"{element.file or 'schema'}:{element.line}: {code}: {detail}")

    def stop(self) -> None:
        """Raise one SchemaError with all errors and warnings so far, if there are any errors."""
        if self._errors:
            first, *others = sorted(self._errors, key=lambda error: (error.file, error.line or 0))
            raise SchemaError(
                first.detail,
                file=first.file,
                line=first.line,
                code=first.code,
                others=tuple(others),
                warnings=tuple(self.warnings),
            )

    def number(self, element: Element, name: str, default: int = 0) -> int:
        """Return a non-negative numeric attribute, or the default; `vocabulary` reports invalid ones as E25."""
        number = self.given(element, name)
        return default if number is None else number

    def given(self, element: Element, name: str) -> int | None:
        """Return a numeric attribute; None if it is missing or not a non-negative number."""
        number = integer(element.get(name) or "")
        return None if number is None or number < 0 else number


def is_symbol(name: str) -> bool:
    """Return whether a name has the symbolic form (SBE 1.0, section 4.2.2)."""
    return _SYMBOL.fullmatch(name) is not None
