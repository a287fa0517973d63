"""What a session that somebody else started refuses is told in one line, before anything is built."""

from collections.abc import Collection

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from silverfold.conf.errors import SparkUnavailable
from silverfold.conf.model import Settings
from silverfold.pipelines.spark.running import check_session
from silverfold.pipelines.spark.session import start_spark
from silverfold.transforms.merge import POSITION_OPTIONS

ADVICE = (
    "a build caches rows, and sets options that carry a table's position into its commit, which serverless compute "
    "allows for neither. Run on a job cluster in dedicated access mode, as jobs/databricks does"
)


class Conf:
    def __init__(self, refused: Collection[str]) -> None:
        self.refused, self.getAll = refused, dict[str, str]()

    def isModifiable(self, name: str) -> bool:  # noqa: N802 - pyspark's name
        return True

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.getAll.get(name, default)

    def set(self, name: str, value: str) -> None:
        if name in self.refused:
            message = f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available: {value}. SQLSTATE: 42K0I"
            raise AnalysisException(message, errorClass="CONFIG_NOT_AVAILABLE")
        self.getAll[name] = value

    def unset(self, name: str) -> None:
        del self.getAll[name]


class Session:
    """A session that refuses some options, and perhaps to cache."""

    def __init__(self, refused: Collection[str] = (), *, caches: bool = True) -> None:
        self.conf, self.refused, self.caches = Conf(refused), refused, caches

    def newSession(self) -> "Session":  # noqa: N802 - as above
        return Session(self.refused, caches=self.caches)

    def sql(self, _statement: str) -> None:
        """Know Delta's statements."""

    def range(self, _count: int) -> "Session":
        return self

    def persist(self) -> "Session":
        if not self.caches:
            message = "[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute."
            raise AnalysisException(message, errorClass="NOT_SUPPORTED_WITH_SERVERLESS")
        return self

    def unpersist(self) -> "Session":
        return self


@pytest.fixture
def running(monkeypatch):
    def run(session: Session) -> Session:
        monkeypatch.setattr(SparkSession, "active", lambda: session)
        return session

    return run


@pytest.mark.parametrize("name", [*POSITION_OPTIONS, "spark.sql.timestampType"])
def test_an_option_that_is_refused_is_named_with_what_needs_it(running, name):
    session = running(Session({name}))
    with pytest.raises(SparkUnavailable) as refused:
        start_spark(Settings(warehouse="w"), app="t")
    assert str(refused.value) == f"this Spark refuses the option {name} (CONFIG_NOT_AVAILABLE): {ADVICE}"
    assert session.conf.getAll == {}


def test_a_session_that_caches_nothing_is_refused(running):
    running(Session(caches=False))
    with pytest.raises(SparkUnavailable) as refused:
        start_spark(Settings(warehouse="w"), app="t")
    assert str(refused.value) == f"this Spark refuses persist (NOT_SUPPORTED_WITH_SERVERLESS): {ADVICE}"


@pytest.mark.parametrize(
    ("error", "condition"),
    [(AnalysisException("no", errorClass="NOT_IMPLEMENTED"), " (NOT_IMPLEMENTED)"), (AttributeError("newSession"), "")],
)
def test_a_session_that_makes_no_other_is_refused(running, monkeypatch, error, condition):
    def refuse() -> Session:
        raise error

    monkeypatch.setattr(running(Session()), "newSession", refuse)
    with pytest.raises(SparkUnavailable) as refused:
        start_spark(Settings(warehouse="w"), app="t")
    assert str(refused.value) == f"this Spark refuses a session of our own{condition}: {ADVICE}"


def test_the_value_of_an_option_that_is_refused_is_not_shown(running):
    running(Session({"spark.hadoop.fs.azure.account.key"}))
    settings = Settings(warehouse="w", spark={"spark.hadoop.fs.azure.account.key": "hunter2"})
    with pytest.raises(SparkUnavailable) as refused:
        start_spark(settings, app="t")
    assert "option spark.hadoop.fs.azure.account.key (" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_connect_server_without_delta_is_told_what_to_be_started_with(monkeypatch):
    class Server(Session):
        version, stopped = "4.2.0", False

        def sql(self, statement: str) -> None:
            raise AnalysisException(f"Syntax error: {statement}", errorClass="PARSE_SYNTAX_ERROR")

        def stop(self) -> None:
            self.stopped = True

    server = Server()
    monkeypatch.setattr("silverfold.pipelines.spark.session.active_session", lambda: None)
    monkeypatch.setattr("silverfold.pipelines.spark.session._connect", lambda _options: server)
    for module in ("session", "running"):
        monkeypatch.setattr(f"silverfold.pipelines.spark.{module}.is_remote", lambda: True)
    with pytest.raises(SparkUnavailable) as refused:
        start_spark(Settings(warehouse="w", spark={"spark.remote": "sc://spark.example"}), app="t")
    assert str(refused.value) == (
        "the Spark Connect server lacks Delta: start it with "
        "spark.jars.packages = io.delta:delta-spark_4.2_2.13:4.4.0, "
        "spark.sql.extensions = io.delta.sql.DeltaSparkSessionExtension and "
        "spark.sql.catalog.spark_catalog = org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    assert server.stopped


def test_a_session_that_refuses_nothing_is_left_without_a_position():
    session = Session()
    check_session(session)
    assert session.conf.getAll == {}


def test_databricks_session_is_found_where_none_is_active(monkeypatch):
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: Session(caches=False))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(SparkUnavailable, match="this Spark refuses persist"):
        start_spark(Settings(warehouse="w"), app="t")
