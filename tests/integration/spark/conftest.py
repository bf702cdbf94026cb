"""One Spark session for all tests of a run, on two cores, and a real server for them to talk to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from trine.spark.session import spark_session

    session = spark_session(
        "local[2]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.default.parallelism": "2",
        },
        app="trine-tests",
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """Tests of other rooms count threads and connections of this process."""
    yield
    from trine.spark.place import close_shared

    close_shared()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Shared by the tests: each uses topics of its own (see `topic_name`)."""
    with Serving(tmp_path_factory.mktemp("serving") / "data") as serving:
        yield serving


@pytest.fixture
def broker(server: Serving) -> Iterator[trine.Broker]:
    with trine.connect(server.url) as connected:
        yield connected


@pytest.fixture
def place(server: Serving) -> Place:
    from trine.spark.place import Place

    return Place(server.url)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name nobody else uses."""
    return f"t{next(_numbers)}-{request.node.name.split('[')[0].removeprefix('test_')}"[:60]


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
