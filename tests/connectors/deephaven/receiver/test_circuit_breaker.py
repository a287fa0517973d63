from silverfold.connectors.common.backoff import Backoff
from silverfold.connectors.deephaven.receiver.receiver import CircuitBreaker
from tests.support.chance import Clock, Highest


def suspensions(clock):
    return CircuitBreaker({name: Backoff(1.0, 30.0, Highest()) for name in ("quotes", "trades")}, clock)


BOTH = {"quotes", "trades"}


def test_a_stream_that_breaks_two_epochs_in_a_row_stays_out_for_a_while():
    clock = Clock()
    found = suspensions(clock)
    found.epoch_ended(BOTH, "quotes")
    assert found.suspension("quotes") == 0.0
    found.epoch_ended(BOTH, "quotes")
    assert (found.suspension("quotes"), found.suspension("trades")) == (1.0, 0.0)
    clock.now += 0.75
    assert found.suspension("quotes") == 0.25
    clock.now += 1
    assert found.suspension("quotes") == 0.0


def test_a_stream_that_goes_on_breaking_epochs_stays_out_longer_each_time():
    clock = Clock()
    found = suspensions(clock)
    seconds = []
    for _ in range(4):
        found.epoch_ended(BOTH, "quotes")
        seconds.append(found.suspension("quotes"))
        clock.now += seconds[-1]
    assert seconds == [0.0, 1.0, 2.0, 4.0]


def test_epochs_that_others_broke_do_not_count():
    found = suspensions(Clock())
    found.epoch_ended(BOTH, "quotes")
    found.epoch_ended(BOTH, "trades")
    found.epoch_ended(BOTH, "quotes")
    assert (found.suspension("quotes"), found.suspension("trades")) == (0.0, 0.0)


def test_epochs_in_which_a_suspended_stream_took_no_part_do_not_clear_it():
    clock = Clock()
    found = suspensions(clock)
    found.epoch_ended(BOTH, "quotes")
    found.epoch_ended(BOTH, "quotes")
    found.epoch_ended({"trades"}, None)
    clock.now += 1
    found.epoch_ended(BOTH, "quotes")
    assert found.suspension("quotes") == 2.0


def test_an_epoch_nobody_can_be_blamed_for_clears_those_who_took_part():
    found = suspensions(Clock())
    found.epoch_ended(BOTH, "quotes")
    found.epoch_ended(BOTH, None)
    found.epoch_ended(BOTH, "quotes")
    assert found.suspension("quotes") == 0.0
