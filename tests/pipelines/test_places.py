from pathlib import Path

import pytest

from pipelines.places import Place, Places


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (Places("/w").bronze("market"), "/w/bronze/market"),
        (Places("/w/").silver("market", "quotes"), "/w/silver/market/quotes"),
        (Places("/w").history("market", "quotes"), "/w/silver/market/quotes__history"),
        (Places("/w").cuts("market"), "/w/_silverfold/market/cuts"),
        (Places("s3://lake/w/").quarantine("market", "quotes"), "s3://lake/w/_silverfold/market/quarantine/quotes"),
        (Places("s3://lake").tombstones("market", "quotes"), "s3://lake/_silverfold/market/tombstones/quotes"),
    ],
)
def test_every_table_has_one_place_under_the_warehouse(place, url):
    assert place.url == url


def test_a_relative_warehouse_is_taken_from_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Places("lake").bronze("market").local == tmp_path / "lake/bronze/market"


def test_a_url_is_not_a_local_folder():
    assert Place("/w/bronze/market").local == Path("/w/bronze/market")
    assert Place("s3://lake/bronze/market").local is None


def test_storage_options_are_never_shown():
    assert "hunter2" not in repr(Places("s3://lake", {"secret": "hunter2"}).bronze("market"))
