"""Where cuts stop: bad frames for good, other faults where they begin, tried again once more has landed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import DuplicateKey, SchemaDrift, UndecodableFrame
from silverfold.connectors.base import Cut
from silverfold.pipelines.holding.cut_bisection import MOST_TRIES, CutBisection, joined_updates, pairs_parted

TWICE = DuplicateKey("two rows", table="quotes")
BAD = UndecodableFrame(table="quotes", position=14, cause_class="INVALID_VALUE", reason="range-count")


def cut(*updates: tuple[int, int], replaces: bool = False) -> Cut:
    """Return a cut of updates that follow each other, each given by its first and last position."""
    begins, ends = tuple(begin for begin, _ in updates), tuple(end for _, end in updates)
    return Cut("quotes", 1, begins[0] - 1, ends[-1], ((begins[0], ends[-1]),), begins, ends, replaces)


FOUR = cut((10, 12), (13, 15), (16, 18), (19, 21))


def test_nothing_stops_a_table_that_never_failed():
    stops = CutBisection()

    assert (stops.within(FOUR), stops.fault) == (None, None)


def test_a_bad_frame_stops_every_cut_it_lies_in():
    stops = CutBisection()

    stops.hold(14, FOUR, BAD)

    assert stops.within(FOUR) == 14
    assert stops.within(cut((10, 12), (13, 15), (16, 18), (19, 21), (22, 30))) == 14
    assert stops.within(cut((10, 12))) is None
    assert stops.within(cut((40, 42), replaces=True)) is None
    assert stops.fault is BAD


def test_of_two_bad_frames_the_later_stops_first_so_that_the_rest_is_planned_anew():
    stops = CutBisection()

    stops.hold(14, FOUR, BAD)
    stops.hold(20, FOUR, SchemaDrift("column gone", table="quotes"))

    assert stops.within(FOUR) == 20
    assert stops.within(cut((10, 12), (13, 15))) == 14
    assert stops.fault is BAD


def test_a_fault_of_a_whole_cut_is_looked_for_in_its_first_half():
    stops = CutBisection()

    half = stops.shorten(FOUR, None)

    assert (half, stops.within(FOUR), stops.within(cut((10, 12), (13, 15)))) == (16, 16, None)
    assert stops.fault is None


def test_the_second_half_is_tried_when_the_first_was_good():
    stops = CutBisection()
    stops.shorten(FOUR, None)

    stops.drop_passed(15)

    assert stops.within(cut((16, 18), (19, 21))) is None


def test_one_update_cannot_be_halved():
    assert CutBisection().shorten(cut((10, 12)), None) is None


def test_an_update_that_made_two_rows_of_one_key_is_tried_again_with_what_lands_later():
    stops = CutBisection()
    stops.shorten(cut((10, 12), (13, 15)), None)

    stops.hold(10, cut((10, 12)), TWICE)

    assert stops.within(cut((10, 12))) == 10
    assert stops.within(cut((10, 12), (13, 15))) == 10
    assert stops.within(cut((10, 12), (13, 15), (16, 18))) is None
    assert stops.fault is TWICE


def test_of_what_fails_again_with_more_only_what_is_longer_is_tried():
    stops = CutBisection()
    stops.hold(10, cut((10, 12)), TWICE)

    tries = [stops.shorten(FOUR, None), stops.shorten(cut((10, 12), (13, 15)), None)]
    stops.hold(10, cut((10, 12), (13, 15)), TWICE)

    assert (tries, stops.within(FOUR)) == ([16, None], 10)


def test_between_what_fails_for_one_reason_and_for_another_cuts_are_tried():
    stops = CutBisection()

    half = stops.shorten(FOUR, None)
    exhausted = stops.shorten(cut((10, 12), (13, 15)), 11)

    assert (half, exhausted, stops.within(cut((10, 12), (13, 15), (16, 18)))) == (16, 19, None)
    assert stops.shorten(cut((10, 12), (13, 15), (16, 18)), 11) is None


def test_a_fault_that_says_since_when_is_tried_up_to_there():
    stops = CutBisection()

    stop = stops.shorten(FOUR, 17)

    assert (stop, stops.within(FOUR), stops.within(cut((10, 12), (13, 15)))) == (16, 16, None)
    assert stops.shorten(cut((10, 12), (13, 15)), 12) is None, "the first update is to blame"


def test_beyond_what_is_known_to_fail_shorter_cuts_are_tried_too():
    stops = CutBisection()
    stops.hold(10, cut((10, 12)), TWICE)

    stop = stops.shorten(FOUR, 19)

    assert (stop, stops.within(cut((10, 12), (13, 15), (16, 18))), stops.within(cut((10, 12)))) == (19, None, 10)


def test_after_many_tries_halves_are_tried():
    long, stops = cut(*((at, at) for at in range(100))), CutBisection()

    found = [stops.shorten(long, 99) for _ in range(MOST_TRIES + 1)]

    assert found == [*[99] * MOST_TRIES, 50]
    stops.drop_passed(3)
    assert stops.shorten(long, 99) == 99


def test_what_was_passed_is_forgotten():
    stops = CutBisection()
    stops.hold(14, FOUR, BAD)

    stops.drop_passed(18)

    assert (stops.within(FOUR), stops.fault) == (None, None)


def test_what_lies_ahead_is_remembered():
    stops = CutBisection()
    stops.hold(14, FOUR, BAD)

    stops.drop_passed(12)

    assert (stops.within(FOUR), stops.fault) == (14, BAD)


def test_stops_that_are_over_elsewhere_are_forgotten():
    stops = CutBisection()
    stops.hold(14, FOUR, BAD)
    stops.hold(20, FOUR, SchemaDrift("column gone", table="quotes"))

    stops.retain({20})

    assert (stops.within(FOUR), stops.within(cut((10, 12), (13, 15)))) == (20, None)


def test_a_cut_that_is_to_pass_a_stop_may_have_twice_as_many_frames_as_the_longest_that_failed():
    stops = CutBisection()
    stops.hold(10, FOUR, TWICE)

    assert (stops.frames_allowed, stops.tried) == (2 * 12, 21)
    stops.hold(10, cut((10, 12), (13, 40)), TWICE)
    assert (stops.frames_allowed, stops.tried) == (2 * 31, 40)
    stops.hold(10, FOUR, BAD)
    assert (stops.frames_allowed, stops.tried) == (0, -1)


def test_updates_are_joined_from_the_newer_one_to_the_older_one_that_comes_later():
    seven = cut(*((at, at) for at in range(1, 8)))
    order = [1, 12, 13, 10, 14, 13, 20]  # of one part of the source
    joined = joined_updates(seven, [(at, "a", (place,)) for at, place in enumerate(order, 1)])
    assert (joined.begins, joined.ends, joined.last) == ((1, 2, 5, 7), (1, 4, 6, 7), 7)


def test_parts_of_a_source_have_no_order_among_each_other():
    five = cut((1, 2), (3, 4), (5, 5), (6, 7), (8, 9))
    places = [(2, "a", (5, 0)), (4, "b", (1, 0)), (5, "a", (5, 1)), (7, "b", (0, 9)), (9, "a", (6, 0))]
    joined = joined_updates(five, places)
    assert (joined.begins, joined.ends) == ((1, 3, 8), (2, 7, 9))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 13))
def test_pairs_are_of_an_update_and_the_first_newer_one_that_a_cut_may_have_together_with_it(frames, reach):
    whole = cut(*((at, at) for at in range(len(frames))))
    earliest = [max(at - reach + 1, 0) for at in range(len(frames))]
    pairs = [
        (min(newer), late)
        for late, (part, place) in enumerate(frames)
        if (newer := [at for at in range(earliest[late], late) if frames[at][0] == part and frames[at][1] > place])
    ]
    expected = [sum(newer <= end < late for newer, late in pairs) for end in range(len(frames))]
    places = [(at, part, (place,)) for at, (part, place) in enumerate(frames)]
    assert pairs_parted(whole, places, earliest) == expected


def test_of_joined_updates_a_shorter_cut_ends_between_two_of_them():
    stops, seven = CutBisection(), cut(*((at, at) for at in range(1, 8)))
    joined = joined_updates(seven, [(2, "a", (9,)), (6, "a", (8,))])
    assert joined.begins == (1, 2, 7)
    assert stops.shorten(joined, None) == 2
    assert stops.shorten(cut((1, 1)), None) is None
