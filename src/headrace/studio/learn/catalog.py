"""The simulations there are, in the order in which to take them."""

from __future__ import annotations

from headrace.studio.learn import (
    batch_or_stream,
    checkpoints,
    dual_writes,
    event_sourced_account,
    exactly_once,
    joins,
    leader_loss,
    partitions,
    queue_and_log,
    three_consumers,
    windows,
)
from headrace.studio.learn.frame import Frame
from headrace.studio.learn.simulation import Simulation, simulation_named

SIMULATIONS: tuple[Simulation, ...] = (
    batch_or_stream.SIMULATION,
    three_consumers.SIMULATION,
    queue_and_log.SIMULATION,
    partitions.SIMULATION,
    dual_writes.SIMULATION,
    event_sourced_account.SIMULATION,
    windows.SIMULATION,
    joins.SIMULATION,
    checkpoints.SIMULATION,
    exactly_once.SIMULATION,
    leader_loss.SIMULATION,
)


def simulate(name: str, *, step: int, **given: object) -> Frame:
    """A frame of a simulation. `given` are its settings, its `seed`, and `do`, its actions."""
    simulation = simulation_named(SIMULATIONS, name)
    setup = simulation.setup({key: str(value) for key, value in given.items()})
    return simulation.frame(setup, simulation.at(setup, {"step": str(step)}))
