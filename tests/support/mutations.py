"""Draws bytes that are nearly those of a source."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """One of the sources with some bytes changed, cut, doubled or put in."""
    octets = bytearray(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(octets) - 1, 0)))
        match draw(st.sampled_from(["set", "cut", "insert", "repeat"])):
            case "set":
                octets[at : at + 1] = draw(st.binary(min_size=1, max_size=2))
            case "cut":
                del octets[at : at + draw(st.integers(1, 8))]
            case "insert":
                octets[at:at] = draw(st.binary(max_size=8))
            case _:
                octets[at:at] = octets[at : at + 16]
    return bytes(octets)
