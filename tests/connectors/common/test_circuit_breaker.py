from silverfold.connectors.common.backoff import Backoff, CircuitBreaker
from tests.support.chance import Clock, Highest


def breaker(clock):
    return CircuitBreaker(lambda: Backoff(1.0, 30.0, Highest()), clock)


def test_a_stream_that_breaks_two_epochs_in_a_row_stays_out_for_a_while():
    clock = Clock()
    found = breaker(clock)
    found.trip("quotes")
    assert found.suspension("quotes") == 0.0
    found.trip("quotes")
    assert (found.suspension("quotes"), found.suspension("trades")) == (1.0, 0.0)
    clock.now += 0.75
    assert found.suspension("quotes") == 0.25
    clock.now += 1
    assert found.suspension("quotes") == 0.0


def test_a_stream_that_goes_on_breaking_epochs_stays_out_longer_each_time():
    clock = Clock()
    found = breaker(clock)
    seconds = []
    for _ in range(4):
        found.trip("quotes")
        seconds.append(found.suspension("quotes"))
        found.reset("trades")
    assert seconds == [0.0, 1.0, 2.0, 4.0]


def test_a_stream_that_has_been_well_since_begins_anew():
    clock = Clock()
    found = breaker(clock)
    for _ in range(3):
        found.trip("quotes")
    clock.now += 2
    found.reset("quotes")
    found.trip("quotes")
    assert found.suspension("quotes") == 0.0
    found.trip("quotes")
    assert found.suspension("quotes") == 1.0
