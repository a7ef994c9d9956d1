"""A simulation: what it teaches, its settings, and the function that makes its frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from headrace.errors import InvalidSetting, UnknownPage
from headrace.pipeline.app import App
from headrace.studio.learn.frame import Frame
from headrace.studio.learn.stage import Arrival

SEEDS = 1 << 31
ACTIONS = 100
"""The most actions of a setup, which its address has to hold."""

Value = int | float | str


@dataclass(frozen=True)
class Slider:
    """A setting with a number."""

    name: str
    label: str
    low: float
    high: float
    default: float
    by: float = 1
    unit: str = ""
    hint: str = ""

    def parse(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self._wrong(text) from None
        if not self.low <= value <= self.high:
            raise self._wrong(text)
        return int(value) if value == int(value) else value

    def _wrong(self, text: str) -> InvalidSetting:
        return InvalidSetting(
            f"{self.name} cannot be {text[:50]!r}",
            hint=f"Use a number from {self.low:g} to {self.high:g}",
        )


@dataclass(frozen=True)
class Choice:
    """A setting with one of a few values, each with its label."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]
    default: str
    hint: str = ""

    def parse(self, text: str) -> str:
        if text not in dict(self.options):
            raise InvalidSetting(
                f"{self.name} cannot be {text[:50]!r}",
                hint=f"There are: {', '.join(dict(self.options))}",
            )
        return text


@dataclass(frozen=True)
class Action:
    """Something a person does at a step, such as adding a consumer."""

    name: str
    label: str
    hint: str = ""


@dataclass(frozen=True)
class Prompt:
    """Something to try: a sentence, and the settings and the step that show it."""

    text: str
    step: int
    values: Mapping[str, Value] = field(default_factory=dict)
    actions: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Setup:
    """The seed, the settings, and the actions by the step after which each was taken."""

    seed: int
    values: tuple[tuple[str, Value], ...]
    actions: tuple[tuple[int, str], ...] = ()

    def __getitem__(self, name: str) -> Value:
        return dict(self.values)[name]

    def number(self, name: str) -> float:
        """The value of a slider."""
        value = self[name]
        assert not isinstance(value, str)
        return value

    def whole(self, name: str) -> int:
        """The value of a slider, as a whole number."""
        return int(self.number(name))

    def text(self, name: str) -> str:
        """The value of a choice."""
        return str(self[name])

    def actions_at(self, step: int) -> tuple[str, ...]:
        """The actions that were taken at a step."""
        return tuple(name for at, name in self.actions if at == step)

    def actions_before(self, step: int, last: int) -> tuple[str, ...]:
        """The actions between the step before and this one; the last step has its own too."""
        at_the_end = self.actions_at(last) if step == last else ()
        return (*self.actions_at(step - 1), *at_the_end)


@dataclass(frozen=True)
class Expected:
    """The rows that a view has by the oracle: the values of some columns."""

    view: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Trial:
    """A pipeline over the events of a simulation, and what its views have by the oracle."""

    app: App
    arrivals: tuple[Arrival, ...]
    views: tuple[Expected, ...]


@dataclass(frozen=True)
class Simulation:
    """One idea, shown by frames. `frame` is pure: the same arguments give the same frame."""

    name: str
    title: str
    idea: str
    settings: tuple[Slider | Choice, ...]
    frame: Callable[[Setup, int], Frame]
    steps: Callable[[Setup], int]
    """The last step."""
    prompts: tuple[Prompt, ...]
    look_for: tuple[str, ...]
    question: str
    answer: str
    concept: str
    """The page of docs about the idea, such as `concepts/windows.md`."""
    actions: tuple[Action, ...] = ()
    model: str = ""
    """A notice that a reference model stands in, and how headrace does it instead."""
    on_spark: Callable[[Setup], Trial] | None = None
    """The same events for Spark, if it can run them."""
    seed: int = 1
    start: int = 0
    """The step at which the page opens."""

    def setup(self, given: Mapping[str, str]) -> Setup:
        """The setup that an address describes; what it leaves out has its default."""
        values = tuple(
            (each.name, each.parse(given[each.name]) if each.name in given else each.default)
            for each in self.settings
        )
        return Setup(_whole(given, "seed", self.seed, SEEDS), values, self._acts(given.get("do")))

    def at(self, setup: Setup, given: Mapping[str, str]) -> int:
        """The step that an address names."""
        return min(_whole(given, "step", self.start, 1_000_000), self.steps(setup))

    def query(self, setup: Setup, step: int) -> str:
        """The address that restores a frame, after the question mark."""
        shown = [(name, f"{value:g}" if not isinstance(value, str) else value)
                 for name, value in setup.values]  # fmt: skip
        acts = ",".join(f"{at}:{name}" for at, name in setup.actions)
        return urlencode(
            [("seed", setup.seed), ("step", step), *shown, *([("do", acts)] if acts else [])]
        )

    def prompted(self, prompt: Prompt) -> str:
        """The address of something to try."""
        values = tuple(
            (each.name, prompt.values.get(each.name, each.default)) for each in self.settings
        )
        return self.query(Setup(self.seed, values, prompt.actions), prompt.step)

    def _acts(self, text: str | None) -> tuple[tuple[int, str], ...]:
        if not text:
            return ()
        names = {action.name for action in self.actions}
        found = []
        for part in text.split(",")[: ACTIONS + 1]:
            at, _, name = part.partition(":")
            if not at.isdecimal() or len(at) > 6 or name not in names:
                raise InvalidSetting(
                    f"There is no action {part[:50]!r}",
                    hint=f"Write STEP:ACTION. There are: {', '.join(sorted(names)) or 'none'}",
                )
            found.append((int(at), name))
        if len(found) > ACTIONS:
            raise InvalidSetting(
                f"There are more than {ACTIONS} actions", hint="Reset the simulation"
            )
        return tuple(sorted(found, key=lambda act: act[0]))


def simulation_named(simulations: Sequence[Simulation], name: str) -> Simulation:
    """A simulation by its name."""
    for simulation in simulations:
        if simulation.name == name:
            return simulation
    raise UnknownPage(
        f"There is no simulation {name[:50]!r}",
        hint=f"There are: {', '.join(each.name for each in simulations)}",
    )


def _whole(given: Mapping[str, str], name: str, default: int, limit: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 12 or int(text) > limit:
        raise InvalidSetting(
            f"{name} cannot be {text[:50]!r}", hint=f"Use a whole number from 0 to {limit}"
        )
    return int(text)
