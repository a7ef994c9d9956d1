"""The same events on Spark: a button of a simulation, and the program that it starts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import htpy as h
from htpy import Element, Node

from headrace.errors import PipelineFailed
from headrace.studio.learn.simulation import Setup, Simulation
from headrace.studio.pages import failure, section, table

_SECONDS = 300
_ONE = threading.Lock()
"""Held while Spark runs: several at once would only wait for each other."""


def trial_of(simulation: Simulation, setup: Setup) -> dict[str, Any]:
    """The rows by Spark and by the oracle. Spark runs in a process of its own."""
    program = [sys.executable, "-m", "headrace.studio.learn.spark_trial"]
    arguments = [simulation.name, simulation.query(setup, 0)]
    with _ONE:
        try:
            done = subprocess.run(
                [*program, *arguments],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PipelineFailed(
                f"Spark took longer than {_SECONDS} s", hint="Is the machine busy? Try again"
            ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PipelineFailed(f"Spark failed: {reason}", hint="`headrace demo --once` needs it too")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def button(simulation: Simulation) -> Node:
    """The button, and the place for the answer."""
    if simulation.on_spark is None:
        return None
    return section(
        "The same on Spark",
        h.p["The numbers above come from the oracle. Spark can count the same events."],
        h.button(
            {"hx-post": f"/learn/{simulation.name}/spark", "hx-indicator": "#on-spark"},
            type="button",
            hx_include="#controls",
            hx_target="#on-spark",
            hx_disable="this",
        )["Run on Spark"],
        h.div("#on-spark", aria_live="polite")[
            h.p(".waiting")["Spark starts, which takes some seconds …"]
        ],
    )


def answer(found: dict[str, Any]) -> Element:
    """The rows by Spark, and whether they are those of the oracle."""
    if not found["equal"]:
        return h.div[
            failure("The results differ", "Please report it, with the address of this page"),
            table(found["columns"], found["by_spark"], caption="By Spark"),
            table(found["columns"], found["by_oracle"], caption="By the oracle"),
        ]
    rows = len(found["by_spark"])
    return h.div[
        h.div(".success", role="status")[h.p[f"Equal: Spark made the same {rows} rows."]],
        table(found["columns"], found["by_spark"], caption="By Spark"),
    ]
