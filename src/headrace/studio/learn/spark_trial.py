"""Run the events of a simulation on Spark, and compare the result with that of the oracle.

python -m headrace.studio.learn.spark_trial windows "seed=1&delay=5"

It is a program of its own, since the studio never loads Spark. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
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
    """The rows of views by Spark and by the oracle, as text, and whether they are equal."""
    by_spark: list[list[str]] = []
    with stage() as (log, clock):
        write(log, clock, trial.arrivals)
        run(trial.app, log, spark=spark, settings=SparkSettings(brief=True))
        with open_views(log.home, app=trial.app.name) as views:
            for view in trial.views:
                found = views.to_arrow(view.view).to_pylist()
                rows = [tuple(row[name] for name in view.columns) for row in found]
                by_spark += _texts(view.view, rows)
    by_oracle = [row for view in trial.views for row in _texts(view.view, view.rows)]
    return {
        "equal": by_spark == by_oracle,
        "columns": ["view", *trial.views[0].columns],
        "by_spark": by_spark,
        "by_oracle": by_oracle,
    }


def _texts(view: str, rows: Iterable[tuple[Any, ...]]) -> list[list[str]]:
    return sorted([view, *map(str, row)] for row in rows)


def main() -> None:
    """Compare the simulation that the arguments name."""
    simulation = simulation_named(SIMULATIONS, sys.argv[1])
    setup = simulation.setup(dict(parse_qsl(sys.argv[2], keep_blank_values=True)))
    assert simulation.on_spark is not None
    print(json.dumps(compared(simulation.on_spark(setup))))


if __name__ == "__main__":
    main()
