"""Pairs the elements of two schemas: by name first, then by position and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from silverfold.connectors.wire.sbe.compare.layouts import meaning
from silverfold.connectors.wire.sbe.schema.model import Data, Field, Group, Member, Message, Presence

BlockPart = TypeVar("BlockPart", Field, Member)
Part = TypeVar("Part", Group, Data)


class Blocks(NamedTuple, Generic[BlockPart]):
    """Fields of a block, or members of a composite. Lists are in the order of their schema, pairs in the new one's."""

    pairs: list[tuple[BlockPart, BlockPart]]
    removed: list[BlockPart]
    added: list[BlockPart]


class Parts(NamedTuple, Generic[Part]):
    """Groups, or data, of one level."""

    pairs: list[tuple[Part, Part]]
    """In the order of the new schema."""
    removed: list[Part]
    appended: list[Part]
    """New, after all pairs."""
    inserted: list[Part]
    """New, before a member of a pair."""
    in_order: bool
    """Pairs have the same order on both sides."""


def pair_blocks(old: Sequence[BlockPart], new: Sequence[BlockPart], version: int) -> Blocks[BlockPart]:
    """Pair by name; then pair renamed elements, with bytes at the same offset and the same encoding.

    Args:
        version: That of the old schema: what is newer is no old element by another name.
    """
    by_name = {each.name: each for each in old}
    partners: dict[str, BlockPart] = {each.name: by_name[each.name] for each in new if each.name in by_name}
    left = {each.offset: each for each in _on_wire(old) if each.name not in partners}
    for each in _on_wire(new):
        candidate = left.get(each.offset) if each.since_version <= version else None
        if each.name not in partners and candidate and meaning(candidate.encoding) == meaning(each.encoding):
            partners[each.name] = candidate
    paired_names = {each.name for each in partners.values()}
    return Blocks(
        [(partners[each.name], each) for each in new if each.name in partners],
        [each for each in old if each.name not in paired_names],
        [each for each in new if each.name not in partners],
    )


def _on_wire(members: Iterable[BlockPart]) -> Iterable[BlockPart]:
    return (each for each in members if each.presence is not Presence.CONSTANT)


def pair_parts(old: Sequence[Part], new: Sequence[Part], layout: Callable[[Part], object], version: int) -> Parts[Part]:
    """Pair by name; then pair renamed parts, between the same neighbours and with the same layout.

    Args:
        version: That of the old schema: what is newer is no old part by another name.
    """
    by_name = {each.name: at for at, each in enumerate(new)}
    partners = {index: by_name[each.name] for index, each in enumerate(old) if each.name in by_name}
    named = dict(partners)
    for index, each in enumerate(old):
        if index not in named:
            between = _between(index, named, len(new))
            free = (at for at in between if at not in partners.values() and new[at].since_version <= version)
            found = next((at for at in free if layout(new[at]) == layout(each)), None)
            if found is not None:
                partners[index] = found
    last = max(partners.values(), default=-1)
    order = [partners[index] for index in sorted(partners)]
    left = [(at, each) for at, each in enumerate(new) if at not in partners.values()]
    return Parts(
        sorted(((old[index], new[at]) for index, at in partners.items()), key=lambda pair: new.index(pair[1])),
        [each for index, each in enumerate(old) if index not in partners],
        [each for at, each in left if at > last],
        [each for at, each in left if at < last],
        order == sorted(order),
    )


def _between(index: int, partners: dict[int, int], end: int) -> range:
    """Return the indexes in the new level between the partners of an old part's neighbours."""
    before = [at for neighbour, at in partners.items() if neighbour < index]
    after = [at for neighbour, at in partners.items() if neighbour > index]
    return range(max(before, default=-1) + 1, min(after, default=end))


class Messages(NamedTuple):
    """Paired messages of two schemas."""

    pairs: list[tuple[Message, Message]]
    """With the same template id."""
    renumbered: list[tuple[Message, Message]]
    """With the same name; the old id no longer exists."""
    removed: list[Message]
    added: list[Message]


def pair_messages(old: Iterable[Message], new: Iterable[Message]) -> Messages:
    """Pair by template id first, then the rest by name."""
    by_id, by_name = {each.id: each for each in new}, {each.name: each for each in new}
    pairs = [(each, by_id[each.id]) for each in old if each.id in by_id]
    paired_ids = {each.id for _, each in pairs}
    rest = [each for each in old if each.id not in by_id]
    renumbered = [(each, by_name[each.name]) for each in rest if each.name in by_name]
    renumbered = [pair for pair in renumbered if pair[1].id not in paired_ids]
    paired_ids |= {each.id for _, each in renumbered}
    renumbered_ids = {each.id for each, _ in renumbered}
    return Messages(
        pairs,
        renumbered,
        [each for each in rest if each.id not in renumbered_ids],
        [each for each in new if each.id not in paired_ids],
    )
