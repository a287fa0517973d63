from pathlib import Path

import pytest

from silverfold.pipelines.places import Place, Places, recovery_advice


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


PLACES = Places("/w/bronze/of/all")


@pytest.mark.parametrize(
    ("place", "way_on"),
    [
        (PLACES.bronze("market"), "bronze's whole folder can be removed"),
        (PLACES.silver("market", "quotes"), "`silverfold rebuild market quotes`"),
        (PLACES.history("market", "quotes"), "`silverfold rebuild market quotes`"),
        (PLACES.side_table("market", "quotes"), "`silverfold rebuild market quotes`"),
        (PLACES.tombstones("market", "quotes"), "`silverfold rebuild market quotes`"),
        (PLACES.cuts("market"), "the next build"),
        (PLACES.quarantine("market", "quotes"), "its folder can be removed"),
        (PLACES.trial("a"), ""),
    ],
)
def test_what_has_lost_something_can_be_had_again_as_its_place_says(place, way_on):
    for url in (place.url, f"file://{place.url}/"):
        assert recovery_advice(url).startswith(f"else {way_on}" if way_on else "")
        assert bool(recovery_advice(url)) == bool(way_on)
