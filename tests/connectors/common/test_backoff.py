import pytest

from silverfold.conf.errors import ConfigError, SourceUnavailable
from silverfold.connectors.common.backoff import Backoff, RenewedFiles
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


MISSING = ConfigError(file="feeds/shop.toml", key="options.ca", found="ca.pem", allowed="a PEM file")


@pytest.mark.parametrize("earlier", [None, SourceUnavailable("nobody listens")])
def test_files_that_were_right_are_waited_for_whether_or_not_the_source_was_there(earlier):
    files = RenewedFiles()
    for _ in range(2):
        with pytest.raises(ConfigError), files.reading():
            raise MISSING
    try:
        with files.reading():
            if earlier is not None:
                raise earlier
    except SourceUnavailable as error:
        assert error is earlier  # noqa: PT017 - it is raised or it is not
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match=r"feeds/shop\.toml: options\.ca: found 'ca\.pem'"), files.reading():
            raise MISSING
