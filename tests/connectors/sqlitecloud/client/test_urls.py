"""Connection strings: what they say, what is refused, and that no secret shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from silverfold.connectors.sqlitecloud.client.settings import ApiKey, ConnectionSettings, Password, Tls
from silverfold.connectors.sqlitecloud.client.urls import parse_connection_string
from silverfold.connectors.sqlitecloud.protocol.messages import Listen, Statement
from silverfold.connectors.sqlitecloud.protocol.statements import (
    create_channel,
    is_safe_word,
    listen_table,
    quote_identifier,
    remove_channel,
    unlisten_channel,
    unlisten_table,
)
from tests.support.sqlitecloud.vectors import GOLDEN, names

STRINGS: dict[str, list[dict[str, Any]]] = json.loads((GOLDEN / "connection_strings.json").read_text(encoding="utf-8"))
WRONG = {
    "scheme": "^sqlitecloud://",
    "two-credentials": "^one kind of credentials",
    "none": "^one kind of credentials",
    "user-without-password": "^one kind of credentials|^a password behind the user",
    "no-host": "^sqlitecloud://",
    "port": "^port: ",
    "separator-in-secret": "^secret: one word",
    "space-in-database": "^database: one word",
    "unknown-key": "^known keys only",
}


def login(text: str) -> str:
    return parse_connection_string(text).login.text


@pytest.mark.parametrize("vector", STRINGS["good"], ids=names(STRINGS["good"]))
def test_a_connection_string_says_what_its_vector_says(vector):
    found = parse_connection_string(vector["text"])
    assert (found.host, found.port, found.database) == (vector["host"], vector["port"], vector["database"])
    assert [found.credentials.command] == vector["auth"]
    assert (found.tls is not None) == vector.get("tls", True)
    assert found.tls is None or found.tls.verify == vector.get("verify", True)
    assert found.compression == vector.get("compression", found.host == "h.example")
    assert found.non_linearizable == vector.get("non_linearizable", False)


@pytest.mark.parametrize("vector", STRINGS["bad"], ids=names(STRINGS["bad"]))
def test_a_wrong_connection_string_is_refused(vector):
    with pytest.raises(ValueError, match=WRONG[vector["id"]]):
        parse_connection_string(vector["text"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sqlitecloud://h?apikey=k&compresion=1", "did you mean compression"),
        ("sqlitecloud://h?apikey=k&compression=yes", "compression: 0, 1, true or false"),
        ("sqlitecloud://h?apikey=k&maxrows=-1", "maxrows: a whole number"),
        ("sqlitecloud://h?apikey=k&maxrows=2147483648", "max_rows: .*2147483647"),
        ("sqlitecloud://h?apikey=k&timeout=0", "timeout: .*greater than 0"),
        ("sqlitecloud://h?apikey=k&timeout=soon", "timeout: a number of seconds"),
        ("sqlitecloud://h?apikey=k&apikey=l", "apikey once only"),
        ("sqlitecloud://h?apikey=k&nonlinearizable=1&non_linearizable=1", "non_linearizable once only"),
        ("sqlitecloud://h?apikey=k&certificate_key=f", "client_certificate_key only with client_certificate"),
        ("sqlitecloud://h?apikey=", "apikey: a value"),
        ("sqlitecloud://h?apikey=k&&", "known keys only"),
        ("sqlitecloud://h?apikey=a%2", "two hexadecimal digits"),
        ("sqlitecloud://h?apikey=a%ff", "UTF-8"),
        ("sqlitecloud://h?apikey=k&token=t", "one kind of credentials"),
        ("sqlitecloud://u:@h", "password: a value"),
        ("sqlitecloud://:p@h", "user: a value"),
        ("sqlitecloud://h:0?apikey=k", "port: .*greater than or equal to 1"),
        ("sqlitecloud://h/a/b?apikey=k", "sqlitecloud://"),
        ("sqlitecloud://h?apikey=k#x", "sqlitecloud://"),
        ("sqlitecloud://u:p@x@h", "sqlitecloud://"),
        ("sqlitecloud://db..example.com/x?apikey=k", "a host whose name can be looked up"),
    ],
)
def test_what_is_wrong_is_said_in_words(text, message):
    with pytest.raises(ValueError, match=message):
        parse_connection_string(text)


@pytest.mark.parametrize("letter", [" ", "%09", "%0A", "%00", "%3B", "'", "%22", "`", "%C2%A0", "%E2%80%8B"])
@pytest.mark.parametrize("form", ["sqlitecloud://u:hunter2{}@h", "sqlitecloud://h?apikey=hunter2{}"])
def test_a_secret_that_would_need_quoting_is_refused_and_not_shown(form, letter):
    with pytest.raises(ValueError, match="one word") as caught:
        parse_connection_string(form.format(letter))
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__context__ is None or "hunter2" not in repr(caught.value.__context__)


def test_no_part_of_a_secret_shows_where_an_ampersand_was_not_encoded():
    with pytest.raises(ValueError, match="known keys only") as caught:
        parse_connection_string("sqlitecloud://h?apikey=hunter&hunter2=1")
    assert "hunter2" not in str(caught.value)


def test_settings_show_no_secret():
    found = parse_connection_string("sqlitecloud://u:hunter2@h/t?timeout=2.5")
    assert "hunter2" not in repr(found) + str(found) + found.model_dump_json() + repr(found.login)
    assert found.timeout == 2.5
    with pytest.raises(ValidationError) as caught:
        Password(user="u", secret=SecretStr("hunter2 "))
    assert "hunter2" not in str(caught.value)


def test_the_login_is_one_text_in_the_order_of_the_official_clients():
    assert login("sqlitecloud://h.example/t.sqlite?apikey=k") == (
        "AUTH APIKEY k;USE DATABASE t.sqlite;SET CLIENT KEY COMPRESSION TO 1;SET CLIENT KEY MAXROWS TO 5000;"
    )
    everything = "create=1&nonlinearizable=TRUE&zerotext=1&noblob=1&maxdata=2&maxrows=0&maxrowset=4&compression=0"
    assert login(f"sqlitecloud://u:p@h.example/t?{everything}") == (
        "SET CLIENT KEY NONLINEARIZABLE TO 1;AUTH USER u PASSWORD p;CREATE DATABASE t IF NOT EXISTS;USE DATABASE t;"
        "SET CLIENT KEY ZEROTEXT TO 1;SET CLIENT KEY NOBLOB TO 1;SET CLIENT KEY MAXDATA TO 2;"
        "SET CLIENT KEY MAXROWSET TO 4;"
    )
    assert login("sqlitecloud://[::1]?token=k&memory=1&create=1&maxrows=0") == "AUTH TOKEN k;USE DATABASE :memory:;"


def test_plus_and_percent_encoded_letters_of_a_secret_are_kept():
    assert login("sqlitecloud://127.0.0.1?apikey=a+b%2F%3D&maxrows=0") == "AUTH APIKEY a+b/=;"


def test_certificates_are_verified_unless_the_string_says_no():
    def tls(query: str) -> Tls | None:
        return parse_connection_string(f"sqlitecloud://h?apikey=k&{query}").tls

    assert tls("no_verify_certificate=1") == Tls(verify=False)
    assert tls("root_certificate=%2Fca.pem&certificate=c&certificate_key=k") == Tls(
        root_certificate="/ca.pem", client_certificate="c", client_certificate_key="k"
    )
    assert tls("client_certificate=c&client_certificate_key=k") == tls("certificate=c&certificate_key=k")
    assert tls("insecure=TRUE") is None


def test_a_control_character_in_the_path_of_a_certificate_is_refused_and_not_shown():
    with pytest.raises(ValueError, match=r"^client_certificate: a path without control characters$"):
        parse_connection_string("sqlitecloud://h?apikey=k&certificate=a%00b")


def test_credentials_may_be_given_beside_the_string_but_not_twice():
    key = ApiKey(secret=SecretStr("k"))
    assert parse_connection_string("sqlitecloud://h/t", credentials=key).credentials == key
    with pytest.raises(ValueError, match="one kind of credentials"):
        parse_connection_string("sqlitecloud://u:p@h/t", credentials=key)


def test_settings_made_without_a_string_keep_the_same_rules():
    with pytest.raises(ValidationError):
        ConnectionSettings(host="h", credentials=ApiKey(secret=SecretStr("k")), database="a;b")


@pytest.mark.parametrize("word", ["", "a b", "a;b", "a'b", 'a"b', "a`b", "a\0", "a\u2028b", "a\x7f", "\ud800"])
def test_what_is_more_than_one_word_is_not_pasted(word):
    assert not is_safe_word(word)


@pytest.mark.parametrize("word", ["t.sqlite", "p@w", "ключ", "a-b_c+d/e="])
def test_one_word_may_be_pasted(word):
    assert is_safe_word(word)


def test_names_are_quoted_with_their_quotes_doubled():
    assert quote_identifier('a "b"; c') == '"a ""b""; c"'
    with pytest.raises(ValueError, match="NUL"):
        quote_identifier("a\0b")


def test_names_in_the_vendors_commands_are_bound():
    assert unlisten_table("f;", "t") == Statement("UNLISTEN TABLE ? DATABASE ?;", ("f;", "t"))
    assert unlisten_channel("c") == Statement("UNLISTEN ?;", ("c",))
    assert create_channel("c'") == Statement("CREATE CHANNEL ?;", ("c'",))
    assert create_channel("c", if_missing=True) == Statement("CREATE CHANNEL ? IF NOT EXISTS;", ("c",))
    assert remove_channel("c") == Statement("REMOVE CHANNEL ?;", ("c",))


def test_the_star_that_stands_for_all_is_a_word_of_the_command():
    assert listen_table("*", "t") == Listen(Statement("LISTEN TABLE * DATABASE ?;", ("t",)))
    assert unlisten_table("*", "t") == Statement("UNLISTEN TABLE * DATABASE ?;", ("t",))
    assert unlisten_channel("*") == Statement("UNLISTEN *;", ())
