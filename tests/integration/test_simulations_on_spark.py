"""Simulations over Spark: it makes the same of their events as the oracle that the pages show."""

from __future__ import annotations

import pytest

from headrace.studio.learn.catalog import SIMULATIONS
from headrace.studio.learn.simulation import simulation_named
from headrace.studio.learn.spark_trial import compared
from tests import spark

TRIALS = [
    ("windows", {"window": "tumbling", "delay": "0", "grace": "0", "disorder": "20"}),
    ("joins", {"bound": "20", "delay": "5"}),
    pytest.param(
        "windows",
        {"window": "session", "size": "6", "delay": "2", "seed": "3"},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("name", "given"), TRIALS, ids=str)
def test_spark_makes_the_same_of_the_events(name: str, given: dict[str, str]) -> None:
    simulation = simulation_named(SIMULATIONS, name)
    assert simulation.on_spark is not None
    found = compared(simulation.on_spark(simulation.setup(given)), spark.shared())
    assert found["by_spark"] == found["by_oracle"] != []
    assert found["equal"]
