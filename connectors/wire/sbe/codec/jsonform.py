"""Decoded messages as JSON, one object each.

::

    {"template": "Quote", "template_id": 11, "schema_id": 7, "version": 3, "length": 116, "fields": {…}}

Null values are ``null``, absent elements have no key. Enums are their names, sets sorted lists of names, composites
objects, arrays and groups lists, bytes lower-case hex, NaN and infinities strings. Integers are exact to 64 bits.
"""

from __future__ import annotations

import json
import math
from typing import Any

from connectors.wire.sbe.codec.decode import Decoded
from connectors.wire.sbe.codec.values import SetValue


def json_text(decoded: Decoded) -> str:
    """Return a decoded message as one line of JSON; ``length`` is the number of bytes read, header included."""
    header = decoded.header
    message = {
        "template": decoded.message.name,
        "template_id": header.template_id,
        "schema_id": header.schema_id,
        "version": header.version,
        "length": decoded.consumed,
        "fields": decoded.values,
    }
    try:
        return _encode(message)
    except ValueError:  # a float without a JSON number: rare, so only such messages pay for the search
        return _encode(_replace_nonfinite(message))


def _to_json(value: Any) -> Any:
    """Return the JSON form of a value that is not JSON-serializable."""
    return value.names if isinstance(value, SetValue) else bytes(value).hex()


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, default=_to_json).encode


def _replace_nonfinite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _replace_nonfinite(element) for name, element in value.items()}
        case list():
            return [_replace_nonfinite(element) for element in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value
