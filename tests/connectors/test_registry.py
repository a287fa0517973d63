"""Feeds are opened by the connector they name; every mistake says file, key, what was found, what is allowed."""

import subprocess
import sys

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.load import load_settings
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.registry import CONNECTORS, find_connector, open_feed
from tests.support.stub_connector import StubConnector

MARKET = """
connector = "deephaven"
address = "127.0.0.1:7777"

[tables.quotes]
source = "Quotes"
"""


@pytest.fixture
def settings(tmp_path):
    """Settings with one feed called market, of the text given."""

    def of(text):
        (tmp_path / "feeds").mkdir(exist_ok=True)
        (tmp_path / "feeds/market.toml").write_text(text)
        return load_settings(tmp_path, "local", {"SILVERFOLD__WAREHOUSE": str(tmp_path / "lake")})

    return of


def mistakes(settings):
    with pytest.raises(ConfigError) as raised:
        open_feed("market", settings)
    return [(each.key, each.found, each.allowed) for each in (raised.value, *raised.value.others)]


def test_a_feed_is_opened_with_its_connectors_own_models(settings):
    connector, feed = open_feed("market", settings(MARKET))
    assert connector is find_connector("deephaven")
    assert (feed.name, feed.connector, feed.address) == ("market", "deephaven", "127.0.0.1:7777")
    assert feed.options == DeephavenOptions()
    assert feed.tables == {"quotes": DeephavenTable(source="Quotes")}
    assert feed.commit.interval_ms == 200


def test_options_and_tables_are_read_as_their_types(settings):
    own = "tests/golden/deephaven/other-schema.xml"
    _, feed = open_feed(
        "market",
        settings(
            MARKET
            + f"""
            columns = ["Sym", "Bid"]
            keys = ["Sym"]
            decimals = {{ Bid = 4 }}

            [options]
            schema = "{own}"
            prefix_counts = "message+prefix"
            date_times = "nanoseconds"
            """
        ),
    )
    assert (feed.options.schema_, feed.options.prefix_counts.value) == (own, "message+prefix")
    assert feed.tables["quotes"].columns == ("Sym", "Bid")
    assert feed.tables["quotes"].decimals == {"Bid": 4}


def test_an_unknown_feed_is_told_which_there_are(settings):
    with pytest.raises(ConfigError, match="found 'nope', allowed: market"):
        open_feed("nope", settings(MARKET))


def test_an_unknown_connector_is_told_which_there_are(settings):
    assert mistakes(settings(MARKET.replace("deephaven", "carrier-pigeon"))) == [
        ("connector", "carrier-pigeon", ", ".join(sorted(CONNECTORS)))
    ]


def test_a_connector_whose_packages_are_not_here_is_told_its_extra(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "lz4", None)
    feed = 'connector = "sqlitecloud"\naddress = "sqlitecloud://127.0.0.1:8860/shop.db"\n[tables.item]\n'
    assert mistakes(settings(feed)) == [
        ("connector", "sqlitecloud", "one whose packages are here: install silverfold[sqlitecloud]")
    ]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("", "host:port, such as 127.0.0.1:7777"),
        ("localhost", "host:port, such as 127.0.0.1:7777"),
        ("localhost:http", "a port from 1 to 65535 after the colon"),
        ("::1:7777", "an IPv6 address in brackets, such as [::1]:7777"),
        (f"{'a' * 64}.de:7777", "a host whose name can be looked up"),
        ("b\u00fccher..x:7777", "a host whose name can be looked up"),
    ],
)
def test_an_address_that_is_none_is_a_mistake_of_the_feeds_file(settings, address, allowed):
    assert mistakes(settings(MARKET.replace("127.0.0.1:7777", address))) == [("address", address, allowed)]


def test_a_mode_may_be_called_as_the_documentation_of_the_source_calls_it(settings):
    _, feed = open_feed("market", settings(MARKET + 'mode = "update_only"\n'))
    assert feed.tables["quotes"].mode == "updates_only"


def test_all_mistakes_are_told_at_once_with_their_file(settings, tmp_path):
    wrong = settings(MARKET + 'mode = "often"\ncolour = "red"\n[options]\ndate_times = "years"\n')
    with pytest.raises(ConfigError) as raised:
        open_feed("market", wrong)
    found = {each.key: str(each.found) for each in (raised.value, *raised.value.others)}
    unknown = "a key that is not known"
    assert found == {"options.date_times": "years", "tables.quotes.mode": "often", "tables.quotes.colour": unknown}
    assert raised.value.file == str(tmp_path / "feeds/market.toml")


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [
        ("every = 5.0", "every only with mode = snapshot_only"),
        ('apply = "upsert"', "apply only with mode = updates_only"),
        ('columns = ["A", "A"]', "each of columns once"),
        ('columns = ["A"]\nkeys = ["B"]', "keys among columns, which lack B"),
        ('columns = ["A"]\ndecimals = { B = 2 }', "decimals among columns, which lack B"),
        (
            'mode = "updates_only"\nkeys = ["A"]',
            "keys with a mode that has snapshots: updates alone name rows by their row keys",
        ),
        (
            'mode = "updates_only"\nstored_as_scd_type = 2',
            "stored_as_scd_type = 2 with apply = upsert: a log is a history already",
        ),
        (
            'keys = ["A"]\nstored_as_scd_type = 2',
            "stored_as_scd_type = 2 without keys: versions are those of a row key",
        ),
    ],
)
def test_settings_of_a_table_that_do_not_fit_together_are_told(settings, lines, allowed):
    ((key, _, message),) = mistakes(settings(MARKET + lines))
    assert (key, message) == ("tables.quotes", allowed)


def test_a_source_with_an_order_of_its_own_keeps_no_history_of_tables_with_snapshots(settings, monkeypatch):
    text = MARKET + "stored_as_scd_type = 2"
    allowed = "1: the order of its changes does not say where a snapshot belongs"
    monkeypatch.setattr("silverfold.connectors.registry.find_connector", lambda _: StubConnector(source_ordered=True))
    assert mistakes(settings(text)) == [("tables.quotes.stored_as_scd_type", 2, allowed)]
    monkeypatch.setattr(
        "silverfold.connectors.registry.find_connector", lambda _: StubConnector(snapshots=False, source_ordered=True)
    )
    _, feed = open_feed("market", settings(text))
    assert feed.tables["quotes"].keeps_history


FEEDS_OF = {
    "deephaven": 'connector = "deephaven"\naddress = "h:1"\n[tables.a]\nsource = "A"\n',
    "hstreamdb": (
        'connector = "hstreamdb"\naddress = "hstream://h"\noptions = { stream = "s", subscription = "f" }\n[tables.a]\n'
    ),
    "sbe": (
        'connector = "sbe"\naddress = "h:1"\noptions = { schema = "builtin", framing = "sofh" }\n'
        '[tables.a]\ntemplate = "Trade"\n'
    ),
    "sqlitecloud": 'connector = "sqlitecloud"\naddress = "sqlitecloud://h/db"\n[tables.a]\n',
    "sqlitecloud_webhooks": (
        'connector = "sqlitecloud_webhooks"\noptions = { database = "db", insecure = true }\n[tables.a]\n'
    ),
    "tengi": 'connector = "tengi"\naddress = "tengi://h"\noptions = { transport = "tcp" }\n[tables.a]\n',
}
TYPED = 'keys = ["{0}"]\ntypes = {{ "{0}" = "bigint" }}'
DECLARED = 'keys = ["{0}"]\ncolumns = {{ "{0}" = "bigint" }}'


def names_refused(settings, connector, lines):
    """Return the settings that name a column as none can be called, and how they do."""
    try:
        open_feed("market", settings(FEEDS_OF[connector] + lines))
    except ConfigError as error:
        found = (error, *error.others)
        return {(each.key, each.found, each.allowed) for each in found if each.allowed.startswith("other columns: ")}
    return set()


@pytest.mark.parametrize(
    ("connector", "lines", "refused"),
    [
        ("deephaven", 'keys = ["{0}"]\ncolumns = ["{0}"]', {"keys", "columns"}),
        ("hstreamdb", DECLARED, {"keys", "columns"}),
        ("sbe", 'keys = ["{0}"]', {"keys"}),
        ("sqlitecloud", TYPED, {"keys", "types"}),
        ("sqlitecloud_webhooks", TYPED, {"keys", "types"}),
        ("tengi", DECLARED, {"keys", "columns"}),
    ],
)
def test_no_table_names_a_column_as_silver_does(settings, connector, lines, refused):
    allowed = "other columns: one of this name is silverfold's own"
    found = names_refused(settings, connector, lines.format("_Position"))
    assert found == {(f"tables.a.{setting}", "_Position", allowed) for setting in refused}


@pytest.mark.parametrize(
    ("connector", "lines", "name", "allowed"),
    [
        ("tengi", DECLARED, "_METADATA", "one of this name is one of Delta's own"),
        ("tengi", DECLARED + "\nchange_data_feed = true", "_Change_Type", "with change_data_feed Delta adds one of"),
        ("tengi", DECLARED + "\nstored_as_scd_type = 2", "__Start_At", "with stored_as_scd_type = 2 silverfold adds"),
        ("tengi", DECLARED, "_change_type", None),
        ("tengi", DECLARED, "__START_AT", None),
        ("hstreamdb", DECLARED, "_ordinal", None),
        (
            "hstreamdb",
            DECLARED,
            "_reasons",
            "one of this name is silverfold's own",
        ),  # its rows may wait beside the table
        ("tengi", DECLARED, "_reasons", None),
    ],
)
def test_which_names_are_taken_depends_on_what_a_table_has_beside_it(settings, connector, lines, name, allowed):
    found = names_refused(settings, connector, lines.format(name))
    assert {message.removeprefix("other columns: ")[: len(allowed or "")] for _, _, message in found} == (
        {allowed} if allowed else set()
    )


@pytest.mark.parametrize("name", CONNECTORS)
def test_each_connector_is_found_by_its_name(name):
    assert find_connector(name).name == name


def test_the_registry_loads_no_connector_and_a_connector_no_spark():
    program = """
import sys
import silverfold.connectors.registry
assert not [name for name in sys.modules if name.startswith("silverfold.connectors.deephaven")]
silverfold.connectors.registry.find_connector("deephaven")
print([name for name in ("pyspark", "pandas") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("letter", ["\\u0000", "\\n", "\\u0085"])
@pytest.mark.parametrize(
    ("feed", "setting"),
    [
        ('connector = "deephaven"\naddress = "h:1"\n[tables.a]', "source"),
        (
            'connector = "sbe"\naddress = "h:1"\noptions = { schema = "builtin", framing = "sofh" }\n[tables.a]',
            "template",
        ),
        ('connector = "sqlitecloud"\naddress = "sqlitecloud://me:s@h/db"\n[tables.a]', "source"),
        ('connector = "sqlitecloud"\naddress = "sqlitecloud://me:s@h/db"\n[tables.a]', "channel"),
        (
            'connector = "sqlitecloud_webhooks"\noptions = { database = "db", insecure = true }\n[tables.a]\n'
            'keys = ["id"]\ntypes = { id = "bigint" }',
            "source",
        ),
    ],
)
def test_a_control_character_in_a_name_of_the_source_is_a_mistake(settings, feed, setting, letter):
    (found,) = mistakes(settings(f'{feed}\n{setting} = "a{letter}b"\n'))
    assert (found[0], found[2]) == (f"tables.a.{setting}", "a name without control characters")


@pytest.mark.parametrize("letter", ["\\u0000", "\\n", "\\u0085"])
@pytest.mark.parametrize(
    ("feed", "key"),
    [
        ('connector = "deephaven"\naddress = "h:1"\noptions = { schema = "?" }', "options.schema"),
        ('connector = "sbe"\naddress = "h:1"\noptions = { schema = "?", framing = "sofh" }', "options.schema"),
        ('connector = "sbe"\naddress = "file:?"\noptions = { schema = "builtin", framing = "sofh" }', "address"),
    ],
)
def test_a_control_character_in_a_path_is_a_mistake(settings, feed, key, letter):
    source = 'source = "Quotes"' if "deephaven" in feed else ""
    (found,) = mistakes(settings(f"{feed}\n[tables.Trade]\n{source}".replace("?", f"a{letter}b")))
    assert (found[0], found[2]) == (key, "a path without control characters")
