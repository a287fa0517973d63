"""A block must not be longer than the number that carries its length can say."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import SchemaError
from tests.support.sbe.basics import message_of

DIMENSIONS = (
    '<composite name="narrow"><type name="blockLength" primitiveType="uint8"/>'
    '<type name="numInGroup" primitiveType="uint8"/></composite>'
)
GROUP = '<group name="g" id="1" dimensionType="narrow" blockLength="{}"><field name="a" id="2" type="int32"/></group>'


def test_a_group_is_held_to_what_its_dimensions_can_say() -> None:
    assert message_of(GROUP.format(255), DIMENSIONS).messages["M"].groups[0].block_length == 255
    with pytest.raises(SchemaError, match="E17: blockLength 256 of g does not fit uint8, which carries it"):
        message_of(GROUP.format(256), DIMENSIONS)


def test_a_message_is_held_to_what_the_header_can_say() -> None:
    block = '<field name="a{0}" id="{0}" type="long"/>'
    types = '<type name="long" primitiveType="char" length="30000"/>'
    assert message_of("".join(map(block.format, (1, 2))), types).messages["M"].block_length == 60_000
    with pytest.raises(SchemaError, match="E17: blockLength 90000 of M does not fit uint16, which carries it"):
        message_of("".join(map(block.format, (1, 2, 3))), types)


@pytest.mark.parametrize(("always", "expected"), [(4, 0), (1, 1), (5, 1)])
def test_a_length_that_is_constant_has_to_be_the_blocks(always, expected):
    constant = DIMENSIONS.replace('"uint8"/>', f'"uint8" presence="constant">{always}</type>', 1)
    warned = [warning for warning in message_of(GROUP.format(4), constant).warnings if "W18" in warning]
    assert [f"blockLength 4 of g is always {always} by narrow: none can be made" in warning for warning in warned] == (
        [True] * expected
    )
