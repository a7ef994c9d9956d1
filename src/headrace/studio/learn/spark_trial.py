"""Run the events of a simulation on Spark, and compare the result with that of the oracle.

python -m headrace.studio.learn.spark_trial windows "seed=1&delay=5"

It is a program of its own, since the studio never loads Spark. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import parse_qsl

from pyspark.sql import SparkSession

from headrace.application.run import run
from headrace.runtime.session import SparkSettings
from headrace.store import open_views
from headrace.studio.learn.catalog import SIMULATIONS
from headrace.studio.learn.simulation import Trial, simulation_named
from headrace.studio.learn.stage import stage, write


def compared(trial: Trial, spark: SparkSession | None = None) -> dict[str, Any]:
    """The rows of a view by Spark and by the oracle, as text, and whether they are equal."""
    with stage() as (log, clock):
        write(log, clock, trial.arrivals)
        run(trial.app, log, spark=spark, settings=SparkSettings(brief=True))
        with open_views(log.home, app=trial.app.name) as views:
            found = views.to_arrow(trial.view).to_pylist()
    by_spark = _sorted([tuple(row[name] for name in trial.columns) for row in found])
    by_oracle = _sorted(list(trial.rows))
    return {
        "equal": by_spark == by_oracle,
        "columns": trial.columns,
        "by_spark": by_spark,
        "by_oracle": by_oracle,
    }


def _sorted(rows: list[tuple[Any, ...]]) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in rows)


def main() -> None:
    """Compare the simulation that the arguments name."""
    simulation = simulation_named(SIMULATIONS, sys.argv[1])
    setup = simulation.setup(dict(parse_qsl(sys.argv[2], keep_blank_values=True)))
    assert simulation.on_spark is not None
    print(json.dumps(compared(simulation.on_spark(setup))))


if __name__ == "__main__":
    main()
