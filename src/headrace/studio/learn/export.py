"""A simulation as a test: what was seen at a step, asserted."""

from __future__ import annotations

from headrace.studio.learn.simulation import Setup, Simulation

_TEST = '''"""{title}: what the simulation showed at step {step}.

{address}
"""

from headrace.studio.learn.catalog import simulate


def test_{name}_at_step_{step}() -> None:
    frame = simulate({arguments})
{assertions}
'''


def as_test(simulation: Simulation, setup: Setup, step: int) -> str:
    """A module for pytest that asserts every number of a frame."""
    frame = simulation.frame(setup, step)
    acts = ",".join(f"{at}:{name}" for at, name in setup.actions)
    given = {
        "step": step,
        "seed": setup.seed,
        **dict(setup.values),
        **({"do": acts} if acts else {}),
    }
    return _TEST.format(
        title=simulation.title,
        step=step,
        name=simulation.name.replace("-", "_"),
        address=f"headrace studio, /learn/{simulation.name}?{simulation.query(setup, step)}",
        arguments=", ".join(
            [repr(simulation.name), *(f"{name}={value!r}" for name, value in given.items())]
        ),
        assertions="\n".join(
            f"    assert frame.number({number.name!r}) == {number.value!r}"
            for number in frame.numbers
        ),
    )
