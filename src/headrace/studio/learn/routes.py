"""The pages of simulations, and the same frames as JSON."""

from __future__ import annotations

from typing import Any

import htpy as h
from anyio import to_thread
from fastapi import APIRouter, Request
from htpy import Element, Node
from starlette.responses import HTMLResponse, PlainTextResponse

from headrace.errors import InvalidSetting
from headrace.studio.learn.catalog import SIMULATIONS
from headrace.studio.learn.drawing import drawn
from headrace.studio.learn.export import as_test
from headrace.studio.learn.fields import field, form
from headrace.studio.learn.on_spark import answer, button, trial_of
from headrace.studio.learn.simulation import Setup, Simulation, simulation_named
from headrace.studio.pages import fragment, page, section

router = APIRouter()


@router.get("/learn", include_in_schema=False)
def index(request: Request) -> HTMLResponse:
    """The list of simulations."""
    cards = [
        h.a(".card", href=f"/learn/{each.name}")[
            h.span(".ordinal")[str(place)], h.strong[each.title], h.span[each.idea]
        ]
        for place, each in enumerate(SIMULATIONS, 1)
    ]
    cards.append(
        h.a(".card", href="/learn/your-data")[
            h.span(".ordinal")["+"],
            h.strong["Your own data"],
            h.span["The windows of a topic in your log, and what each delay would have cost."],
        ]
    )
    lead = (
        "Each page shows one idea. Its numbers come out of headrace's own log, oracle and sink, on "
        "a clock that you control."
    )
    return page(request, "Learn streaming", h.p(".lead")[lead], h.div(".cards")[cards])


@router.get("/learn/{name}", include_in_schema=False)
def simulation(request: Request, name: str) -> HTMLResponse:
    """The page of a simulation at the step that the address names."""
    found = simulation_named(SIMULATIONS, name)
    given = dict(request.query_params)
    setup = found.setup(given)
    step = found.at(setup, given)
    return page(request, found.title, *_content(found, setup, step), wide=True)


@router.get("/api/learn/{name}", tags=["learn"])
def frame(request: Request, name: str) -> dict[str, Any]:
    """A frame of a simulation as plain data. Its settings are query parameters."""
    found = simulation_named(SIMULATIONS, name)
    given = dict(request.query_params)
    setup = found.setup(given)
    return found.frame(setup, found.at(setup, given)).plain()


@router.post("/learn/{name}/spark", include_in_schema=False)
async def on_spark(request: Request, name: str) -> HTMLResponse:
    """Run the same events through Spark, in a process of its own, and compare the results."""
    found = simulation_named(SIMULATIONS, name)
    setup = found.setup({key: str(value) for key, value in (await request.form()).items()})
    if found.on_spark is None:
        able = ", ".join(each.name for each in SIMULATIONS if each.on_spark is not None)
        raise InvalidSetting(f"Spark does not run {name!r}", hint=f"It runs: {able}")
    return fragment(answer(await to_thread.run_sync(trial_of, found, setup)))


@router.get("/learn/{name}/test", include_in_schema=False)
def exported(request: Request, name: str) -> PlainTextResponse:
    """A module for pytest that asserts what a frame shows."""
    found = simulation_named(SIMULATIONS, name)
    given = dict(request.query_params)
    setup = found.setup(given)
    step = found.at(setup, given)
    file = f"test_{found.name.replace('-', '_')}.py"
    return PlainTextResponse(
        as_test(found, setup, step),
        headers={"content-disposition": f'attachment; filename="{file}"'},
    )


def _content(found: Simulation, setup: Setup, step: int) -> list[Node]:
    return [
        h.p(".lead")[found.idea],
        found.model and h.p(".note")[h.strong["A model. "], found.model],
        h.div(".simulation")[
            _controls(found, setup, step),
            h.div(".stage")[drawn(found.frame(setup, step))],
        ],
        button(found),
        h.div(".columns")[
            section(
                "Try this",
                h.ul(".prompts")[
                    (h.li[h.a(href=f"?{found.prompted(p)}")[p.text]] for p in found.prompts)
                ],
            ),
            section("What to look for", h.ul[(h.li[text] for text in found.look_for)]),
            section(
                "A question",
                h.p[found.question],
                h.details[h.summary["Answer"], h.p[found.answer]],
                h.p[h.a(href=f"/docs/{found.concept}")["Read about the idea"]],
            ),
        ],
    ]


def _controls(found: Simulation, setup: Setup, step: int) -> Element:
    """The form whose fields are the address: it works without any script."""
    acts = ",".join(f"{at}:{name}" for at, name in setup.actions)
    return form(
        "#controls",
        f"/learn/{found.name}",
        h.div(".player", role="group", aria_label="Player")[
            _button("back", "‹", "Step back (←)"),
            _button("play", "▶", "Play or pause (space)"),
            _button("forward", "›", "Step forward (→)"),
            _button("reset", "⟲", "Back to the beginning (Home)"),
            h.label(".grow", for_="set-step")[
                h.span[
                    "Step ",
                    h.output(data_for="step")[str(step)],
                    f" of {found.steps(setup)}",
                ],
                h.input(
                    id="set-step",
                    type="range",
                    name="step",
                    min="0",
                    max=str(found.steps(setup)),
                    value=str(step),
                ),
            ],
        ],
        bool(found.actions)
        and h.div(".actions", role="group", aria_label="Do something now")[
            (
                h.button(type="button", data_act=act.name, title=act.hint or None)[act.label]
                for act in found.actions
            ),
            h.button(type="button", data_act="", title="Take back every action")["clear"],
        ],
        bool(found.actions) and h.input(type="hidden", name="do", value=acts),
        [field(each, setup[each.name]) for each in found.settings],
        h.label(".field")[
            h.span["Seed"],
            h.input(type="number", name="seed", min="0", max="999999", value=str(setup.seed)),
        ],
        h.div(".links")[
            h.button("#link", type="button", title="Copy the address of this frame")["Copy link"],
            h.a("#export", href=f"/learn/{found.name}/test?{found.query(setup, step)}")[
                "Save as a test"
            ],
            h.noscript[h.button(type="submit")["Show"]],
        ],
    )


def _button(name: str, text: str, title: str) -> Element:
    return h.button(type="button", data_player=name, title=title, aria_label=title)[text]
