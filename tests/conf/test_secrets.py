import os

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.model import Strict
from silverfold.conf.secrets import Secret, revealed
from silverfold.conf.validate import validated


class Login(Strict):
    user: str
    password: Secret | None = None


def test_a_secret_in_a_variable_is_read_when_it_is_used():
    environ = {"TOKEN": "old"}
    secret = Secret(env="TOKEN")
    environ["TOKEN"] = "new"
    assert secret.reveal(environ) == "new"


def test_a_secret_in_a_file_loses_its_line_end(tmp_path):
    (tmp_path / "token").write_text(" to ken \n")
    assert Secret(file=str(tmp_path / "token")).reveal({}) == " to ken "


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(ConfigError, match="environment: TOKEN: found nothing, allowed: the secret"):
        Secret(env="TOKEN").reveal({})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone: secret: found .*No such file.* allowed: a readable text file"):
        Secret(file=str(tmp_path / "gone")).reveal({})


@pytest.mark.parametrize("path", ["a\0", "a\nb", "a\x85"])
def test_a_file_whose_path_has_a_control_character_is_refused_with_the_settings(path):
    with pytest.raises(ConfigError, match=r"options.password.file: found .* a path without control characters"):
        validated(Login, {"user": "me", "password": {"file": path}}, file="feeds/market.toml", prefix="options")


def test_no_byte_of_a_secret_that_is_no_text_is_told(tmp_path):
    (tmp_path / "token").write_bytes(b"\xe9t\xe9")
    with pytest.raises(ConfigError, match="secret: found 'bytes that are not UTF-8', allowed: a readable") as refused:
        Secret(file=str(tmp_path / "token")).reveal({})
    assert refused.value.__context__ is None


def test_no_byte_of_a_variable_that_is_no_text_is_told():
    with pytest.raises(ConfigError, match="environment: TOKEN: found 'bytes that are not UTF-8'") as refused:
        Secret(env="TOKEN").reveal({"TOKEN": os.fsdecode(b"\xe9t\xe9")})
    assert refused.value.__context__ is None


def test_the_mark_that_some_editors_write_first_is_no_part_of_a_secret(tmp_path):
    (tmp_path / "token").write_bytes(b"\xef\xbb\xbftoken\r\n")
    assert Secret(file=str(tmp_path / "token")).reveal({}) == "token"


def test_plain_values_pass_beside_references():
    given = {"a": "plain", "b": Secret(env="B")}
    assert revealed(given, {"B": "hidden"}, "options.handshake") == {"a": "plain", "b": "hidden"}


def test_a_file_that_is_not_there_is_named_with_the_setting_that_refers_to_it(tmp_path):
    with pytest.raises(ConfigError, match=r"gone: options\.handshake\.token: found .*No such file"):
        revealed({"token": Secret(file=str(tmp_path / "gone"))}, {}, "options.handshake")


@pytest.mark.parametrize("written", ["hunter2", 42, ["hunter2"], {"value": "hunter2"}, {"env": "A", "file": "hunter2"}])
def test_a_secret_written_out_is_refused_and_not_repeated(written):
    with pytest.raises(ConfigError) as refused:
        validated(Login, {"user": "me", "password": written}, file="feeds/market.toml", prefix="options")
    assert str(refused.value) == (
        "feeds/market.toml: options.password: found a value that is not shown, "
        'allowed: a reference to a secret: { env = "NAME" } or { file = "PATH" }'
    )
    assert refused.value.__context__ is None


def test_a_reference_is_accepted():
    login = validated(Login, {"user": "me", "password": {"env": "TOKEN"}}, file="f")
    assert login.password == Secret(env="TOKEN")


def test_a_secret_is_not_waited_for_in_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "key")
    with pytest.raises(ConfigError, match="Not a file"):
        Secret(file=str(tmp_path / "key")).reveal({})
