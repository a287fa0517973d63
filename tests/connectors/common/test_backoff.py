from silverfold.connectors.common.backoff import Backoff
from tests.support.chance import Highest


def test_waits_double_up_to_the_longest_and_are_drawn_from_zero_up():
    backoff = Backoff(1.0, 5.0, Highest())
    assert [backoff.next_wait() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_a_success_waits_are_short_again():
    backoff = Backoff(1.0, 5.0, Highest())
    backoff.next_wait()
    backoff.next_wait()
    backoff.reset()
    assert backoff.next_wait() == 1.0
