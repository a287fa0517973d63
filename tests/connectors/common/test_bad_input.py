"""What a mark contains of input that cannot be read."""

import json
from base64 import b64decode

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.bad_input import bad_input
from silverfold.connectors.frames import Boundary, Kind


def test_the_mark_names_the_error_beside_the_details_of_its_connector():
    frame = bad_input(
        "bad frame", b"\xff" * 4, InvalidValue("no frame", reason="length"), stream="quotes", level="warning", size=4
    )
    assert frame == (
        b'{"body": "/////w==", "error_class": "INVALID_VALUE", "level": "warning", "mark": "bad frame", '
        b'"reason": "length: no frame", "size": 4}',
        Kind.MARK,
        Boundary.NONE,
        "quotes",
        None,
    )


def test_only_the_beginning_of_long_input_is_copied():
    mark = json.loads(bad_input("unknown template", b"12" + bytes(100_000), template_id=7).body)
    assert (mark["mark"], mark["template_id"]) == ("unknown template", 7)
    assert b64decode(mark["body"]) == b"12" + bytes(65_534)
