import os
from pathlib import Path

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.conf.load import load_settings
from silverfold.conf.model import Build, CutLimits

FEED = """
connector = "deephaven"
address = "127.0.0.1:7777"
[tables.quotes]
source = "Quotes"
"""


def folder(tmp_path: Path, settings: str = "", **feeds: str) -> Path:
    (tmp_path / "feeds").mkdir(parents=True)
    (tmp_path / "settings.toml").write_text(settings)
    for name, text in feeds.items():
        (tmp_path / "feeds" / f"{name}.toml").write_text(text)
    return tmp_path


def mistakes(conf_dir: Path | None, env: str = "local", environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_settings(conf_dir, env, environ or {})
    return [str(error) for error in (raised.value, *raised.value.others)]


def test_the_packaged_settings_alone_are_enough_on_one_machine():
    settings = load_settings(None, "local", {})
    assert settings.warehouse == "warehouse"
    assert settings.spark["spark.master"] == "local[*]"
    assert settings.log_level == "info"
    assert settings.feeds == {}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SILVERFOLD__SPARK": '{ "spark.master" = "spark://m:7077" }'}, {"spark.master": "spark://m:7077"}),
        ({"PYSPARK_GATEWAY_PORT": "1"}, {}),
        (
            {"SILVERFOLD__SPARK": '{ "spark.driver.host" = "driver" }', "PYSPARK_GATEWAY_PORT": "1"},
            {"spark.driver.host": "driver"},
        ),
    ],
)
def test_what_local_says_of_spark_does_not_hold_elsewhere(environ, expected):
    assert load_settings(None, "local", environ).spark == expected
    here = load_settings(None, "local", {"SILVERFOLD__SPARK": '{ "spark.master" = "local[1]" }'})
    assert (here.spark["spark.master"], here.spark["spark.driver.host"]) == ("local[1]", "127.0.0.1")


@pytest.mark.parametrize("warehouse", ["s3://KEY:sesame@lake/w", "s3:/lake/sesame"])
def test_a_warehouse_names_a_place_and_nothing_else(warehouse):
    (mistake,) = mistakes(None, environ={"SILVERFOLD__WAREHOUSE": warehouse})
    assert "warehouse: found" in mistake
    assert "KEY" not in mistake


def test_databricks_needs_a_warehouse_and_says_where_to_set_it(tmp_path):
    assert mistakes(None, "databricks") == [
        "databricks.toml of silverfold: warehouse: found nothing, allowed: a value: this setting has no default"
    ]
    assert mistakes(folder(tmp_path), "databricks") == [
        f"{tmp_path}/settings.toml: warehouse: found nothing, allowed: a value: this setting has no default"
    ]


def test_later_layers_win_key_by_key(tmp_path):
    conf_dir = folder(tmp_path, 'log_level = "debug"\n[build]\npoll_ms = 50\ncut.max_frames = 7\n')
    settings = load_settings(
        conf_dir, "databricks", {"SILVERFOLD__WAREHOUSE": "/w", "SILVERFOLD__BUILD__POLL_MS": "60"}
    )
    assert settings.build == Build(poll_ms=60, tables_at_once=2, cut=CutLimits(max_frames=7, max_bytes=1 << 30))
    assert (settings.warehouse, settings.log_level) == ("/w", "debug")


def test_a_feed_is_called_after_its_file(tmp_path):
    settings = load_settings(folder(tmp_path, market=FEED), "local", {})
    assert list(settings.feeds) == ["market"]
    assert settings.feeds["market"].address == "127.0.0.1:7777"
    assert settings.feeds["market"].tables == {"quotes": {"source": "Quotes"}}


def test_variables_reach_into_feeds_and_find_names_whatever_their_case(tmp_path):
    conf_dir = folder(tmp_path, market=FEED.replace("tables.quotes", "tables.BestQuotes"))
    environ = {
        "SILVERFOLD__FEEDS__MARKET__ADDRESS": "10.0.0.1:1",
        "SILVERFOLD__FEEDS__MARKET__TABLES__BESTQUOTES__KEYS": '["Sym"]',
        "SILVERFOLD__FEEDS__MARKET__OPTIONS__DEPTH": "3",
    }
    feed = load_settings(conf_dir, "local", environ).feeds["market"]
    assert feed.address == "10.0.0.1:1"
    assert feed.tables == {"BestQuotes": {"source": "Quotes", "keys": ["Sym"]}}
    assert feed.options == {"depth": 3}
    capital = load_settings(folder(tmp_path / "capital", Market=FEED), "local", {next(iter(environ)): "10.0.0.1:1"})
    assert capital.feeds["Market"].address == "10.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain", "plain"),
        ("s3://bucket/path", "s3://bucket/path"),
        ("7", 7),
        ("7.5", 7.5),
        ("true", True),
        ('"7"', "7"),
        ("[1, 2]", [1, 2]),
        ("{ a = 1 }", {"a": 1}),
        ("2024-05-01", "2024-05-01"),
        ("inf", "inf"),
        ("", ""),
        ("1\nlog_level = 2", "1\nlog_level = 2"),
    ],
)
def test_a_variable_is_toml_where_it_is_plainly_that_and_text_otherwise(tmp_path, text, read):
    environ = {"SILVERFOLD__FEEDS__MARKET__OPTIONS__X": text}
    assert load_settings(folder(tmp_path, market=FEED), "local", environ).feeds["market"].options == {"x": read}


def test_a_table_of_options_with_dots_in_their_names_fits_into_one_variable():
    environ = {"SILVERFOLD__SPARK": '{ "spark.driver.memory" = "8g" }'}
    settings = load_settings(None, "local", environ)
    assert settings.spark["spark.driver.memory"] == "8g"
    assert settings.spark["spark.master"] == "local[*]"


def test_other_variables_are_left_alone():
    assert load_settings(None, "local", {"SILVERFOLD_ENV": "x", "PATH": "y"}).warehouse == "warehouse"


def test_all_mistakes_of_all_files_are_told_at_once(tmp_path):
    conf_dir = folder(
        tmp_path,
        'warehuse = "x"\nlog_level = "loud"\n[build]\npoll_ms = "50"\ncut.max_frames = true\n',
        market=FEED + "[commit]\ninterval_ms = 0\n",
        other='connector = "deephaven"\n',
    )
    assert mistakes(conf_dir, environ={"SILVERFOLD__BUILD__TABLES_AT_ONCE": "many"}) == [
        f"{tmp_path}/settings.toml: build.poll_ms: found '50', allowed: a whole number",
        "environment variable SILVERFOLD__BUILD__TABLES_AT_ONCE: build.tables_at_once: "
        "found 'many', allowed: a whole number",
        f"{tmp_path}/settings.toml: build.cut.max_frames: found True, allowed: a whole number",
        f"{tmp_path}/settings.toml: log_level: found 'loud', allowed: 'debug', 'info', 'warning' or 'error'",
        f"{tmp_path}/settings.toml: warehuse: found a key that is not known, "
        "allowed: no such key, did you mean warehouse? "
        "Known here: build, feeds, lease, log_level, maintain, spark, storage_options, warehouse",
        f"{tmp_path}/feeds/market.toml: commit.interval_ms: found 0, allowed: greater than or equal to 1",
        f"{tmp_path}/feeds/other.toml: tables: found nothing, allowed: a value: this setting has no default",
    ]


def test_a_file_that_is_not_toml_is_named_with_its_line(tmp_path):
    (conf_dir,) = [folder(tmp_path, 'warehouse = "x"\nlog_level = loud\n')]
    assert mistakes(conf_dir) == [f"{tmp_path}/settings.toml: line 2, column 13: found 'Invalid value', allowed: TOML"]


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    folder(tmp_path)
    (tmp_path / "settings.toml").write_bytes(b'warehouse = "\xff"')
    assert mistakes(tmp_path) == [f"{tmp_path}/settings.toml: byte 13: found 'other bytes', allowed: UTF-8"]


def test_an_unknown_environment_is_answered_with_the_known_ones():
    assert mistakes(None, "prod") == ["command line: --env: found 'prod', allowed: cluster, databricks, local"]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    assert mistakes(tmp_path / "gone") == [
        f"command line: --conf: found '{tmp_path}/gone', allowed: an existing folder"
    ]


@pytest.mark.parametrize("name", ["local", "cluster", "databricks", "base"])
def test_a_file_called_like_a_packaged_layer_is_not_left_unread(tmp_path, name):
    (tmp_path / f"{name}.toml").write_text('warehouse = "/w"\n')

    assert mistakes(tmp_path) == [
        f"{tmp_path}: a file's name: found '{name}.toml', allowed: settings.toml, feeds/<feed>.toml"
    ]


def test_a_file_may_begin_with_a_byte_order_mark_and_is_not_too_deep(tmp_path):
    conf = folder(tmp_path)
    (conf / "settings.toml").write_bytes(b'\xef\xbb\xbfwarehouse = "/w"\n')
    assert load_settings(conf, "local", {}).warehouse == "/w"
    (conf / "settings.toml").write_text("spark = " + "[" * 100_000)
    assert mistakes(conf) == [f"{conf}/settings.toml: the whole file: found 'values too deep in others', allowed: TOML"]


def test_feeds_have_files_of_their_own(tmp_path):
    assert mistakes(folder(tmp_path, '[feeds.market]\nconnector = "deephaven"\n')) == [
        f"{tmp_path}/settings.toml: feeds: found 'a table', allowed: one file for each: feeds/<feed>.toml"
    ]


@pytest.mark.parametrize("name", ["2nd", "a-b", "a__b", "é", "a" * 201])
def test_names_of_feeds_and_tables_are_folders_and_sql_names(tmp_path, name):
    conf_dir = folder(tmp_path, **{name: FEED.replace("quotes", f'"{name}"')})
    rule = "letters, digits and single underscores, a letter first, 200 at most"
    assert mistakes(conf_dir) == [
        f"{tmp_path}/feeds/{name}.toml: the file's name: found '{name}', allowed: {rule}",
        f"{tmp_path}/feeds/{name}.toml: tables.{name}: found '{name}', allowed: {rule}",
    ]


def test_a_variable_for_a_feed_without_a_file_is_told(tmp_path):
    assert mistakes(folder(tmp_path, market=FEED), environ={"SILVERFOLD__FEEDS__MARKT__ADDRESS": "x"}) == [
        "environment: SILVERFOLD__FEEDS__MARKT__ADDRESS: found 'markt', "
        "allowed: SILVERFOLD__FEEDS__<feed>__<key>, with a feed of market"
    ]


def test_a_feed_knows_which_file_or_variable_set_a_key(tmp_path):
    conf_dir = folder(tmp_path, market=FEED + '[options]\nschema = "x"\n')
    feed = load_settings(conf_dir, "local", {"SILVERFOLD__FEEDS__MARKET__OPTIONS__DEPTH": "3"}).feeds["market"]
    assert feed.file_of(("options", "schema")) == f"{tmp_path}/feeds/market.toml"
    assert feed.file_of(("options", "depth")) == "environment variable SILVERFOLD__FEEDS__MARKET__OPTIONS__DEPTH"


def test_storage_secrets_are_revealed_only_when_asked_for(tmp_path):
    conf_dir = folder(tmp_path, '[storage_options]\nKEY = { env = "STORE_KEY" }\nREGION = "eu"\n')
    settings = load_settings(conf_dir, "local", {"STORE_KEY": "hunter2"})
    assert settings.storage() == {"KEY": "hunter2", "REGION": "eu"}
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_of_sparks_options_some_may_be_secrets(tmp_path):
    conf_dir = folder(tmp_path, '[spark]\n"spark.a" = "b"\n"spark.key" = { env = "STORE_KEY" }\n')
    settings = load_settings(conf_dir, "local", {"STORE_KEY": "hunter2"})
    assert (settings.spark_options["spark.a"], "spark.key" in settings.spark_options) == ("b", False)
    assert settings.spark_secrets() == {"spark.key": "hunter2"}
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("[maintain]\nbronze_days = inf\n", "maintain.bronze_days: found inf, allowed: "),
        ("[build]\npoll_ms = 99999999999\n", "build.poll_ms: found 99999999999, allowed: less than or equal to "),
        ('warehouse = " "\n', "warehouse: found ' ', allowed: a folder, or a URL with more than its beginning"),
        ('warehouse = "~/wh"\n', "warehouse: found '~/wh', allowed: a folder whose path is written out"),
        ('warehouse = "s3://"\n', "warehouse: found 's3://', allowed: a folder, or a URL with more than its beginning"),
        *(
            (
                f'warehouse = "{place}"\n',
                f"warehouse: found '{place}', allowed: the URL of the external location below it, such as abfss://…, "
                "s3://… or gs://…: a volume or a mount cannot rename a file in one step, so of two writers one loses",
            )
            for place in (
                "/Volumes/main/default/x",
                "/Volumes",
                "/tmp/../Volumes/main",
                "file:///Volumes/main/default/x",
                "dbfs:/Volumes/main/default/x",
                "dbfs:///Volumes/main/default/x",
                "/dbfs/Volumes/main/default/x",
                "dbfs:/mnt/lake",
            )
        ),
        ('warehouse = "/w#1"\n', "warehouse: found '/w#1', allowed: a folder without # in its path '/w#1', which"),
        ('warehouse = "/w[?\\t"\n', r"warehouse: found '/w[?\t', allowed: a folder without ? [ \t in its path"),
        ('warehouse = "/w{h}*"\n', "warehouse: found '/w{h}*', allowed: a folder without * { } in its path"),
        (
            f'warehouse = "/w/{"x" * 256}"\n',
            f"warehouse: found '/w/{'x' * 256}', allowed: a folder none of whose names has more than",
        ),
        ('warehouse = "file:///w%20x"\n', "warehouse: found 'file:///w%20x', allowed: a URL without % in it, which"),
        ('warehouse = "file://lake/w"\n', "warehouse: found 'file://lake/w', allowed: a folder's path: behind file://"),
        ('warehouse = "s3://lake/w?x"\n', "warehouse: found 's3://lake/w?x', allowed: a URL without ? in it, which"),
        ('warehouse = "zz://x/y"\n', "warehouse: found 'zz://x/y', allowed: a folder, or a URL of file, s3, "),
    ],
)
def test_numbers_and_places_that_make_no_sense_are_mistakes(tmp_path: Path, settings: str, expected: str) -> None:
    (mistake,) = mistakes(folder(tmp_path, settings))
    assert mistake.startswith(f"{tmp_path}/settings.toml: {expected}")


def test_a_folder_that_leads_to_a_volume_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "lake").symlink_to("/Volumes/main/default")
    (mistake,) = mistakes(folder(tmp_path / "conf", f'warehouse = "{tmp_path}/lake/x"\n'))
    assert "a volume or a mount cannot rename a file in one step" in mistake


def test_a_wait_without_end_is_a_mistake(tmp_path: Path) -> None:
    (mistake,) = mistakes(folder(tmp_path, market=FEED + "[reconnect]\nlongest = inf\n"))
    assert mistake.startswith(f"{tmp_path}/feeds/market.toml: reconnect.longest: found inf, allowed: ")


def test_a_relative_warehouse_lies_in_a_folder_that_can_be_addressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    conf = folder(tmp_path / "conf", 'warehouse = "lake"\n')
    (tmp_path / "a[1]").mkdir()
    monkeypatch.chdir(tmp_path / "a[1]")
    (mistake,) = mistakes(conf)
    assert f"allowed: a folder without [ ] in its path '{tmp_path}/a[1]/lake', which" in mistake


def test_a_warehouse_that_is_a_file_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for number, place in enumerate((f"{tmp_path}/taken", f"{tmp_path}/taken/inside/it", f"{tmp_path}/pipe")):
        (mistake,) = mistakes(folder(tmp_path / str(number), f'warehouse = "{place}"\n'))
        assert mistake.endswith(f"warehouse: found '{place}', allowed: a folder, in no file, or a URL")


@pytest.mark.parametrize("name", ["market.TOML", "market.toml.txt"])
def test_a_feed_whose_file_would_be_passed_over_is_a_mistake(tmp_path: Path, name: str) -> None:
    conf_dir = folder(tmp_path)
    (conf_dir / "feeds" / name).write_text(FEED)
    (conf_dir / "feeds" / "market.toml.bak").write_text("whoever keeps this knows why")
    (mistake,) = mistakes(conf_dir)
    assert mistake.endswith(f"{name}: the file's name: found '{name}', allowed: a name that ends with .toml")


def test_a_folder_that_has_no_settings_is_none_of_settings(tmp_path: Path) -> None:
    inside = folder(tmp_path, market=FEED) / "feeds"
    (mistake,) = mistakes(inside)
    expected = f"found '{inside}', allowed: a folder with settings.toml or feeds/<feed>.toml"
    assert mistake == f"command line: --conf: {expected}"


def test_names_that_differ_in_case_only_are_mistakes(tmp_path: Path) -> None:
    conf_dir = folder(tmp_path, market=FEED + '[tables.QUOTES]\nsource = "Other"\n')
    (mistake,) = mistakes(conf_dir)
    assert mistake.startswith(f"{tmp_path}/feeds/market.toml: tables.QUOTES: found 'QUOTES', allowed: a name that no ")
    (conf_dir / "feeds" / "Market.toml").write_text(FEED)
    (mistake,) = mistakes(conf_dir)
    assert mistake.startswith(f"{tmp_path}/feeds: the file's name: found 'market', allowed: a name that no other has")


@pytest.mark.parametrize("name", ["settings.toml", "feeds/market.toml"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    (tmp_path / "feeds").mkdir()
    os.mkfifo(tmp_path / name)
    assert mistakes(tmp_path) == [f"{tmp_path}/{name}: the whole file: found 'Not a file', allowed: a readable file"]


def test_feeds_are_in_a_folder(tmp_path):
    (tmp_path / "feeds").write_text("")
    assert mistakes(tmp_path) == [f"{tmp_path}: feeds: found 'a file', allowed: a folder: feeds/<feed>.toml"]
