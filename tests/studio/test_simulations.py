"""Every simulation is a pure function, and says the same on its page as in its API."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from headrace.errors import InvalidSetting, UnknownPage
from headrace.studio.learn.catalog import SIMULATIONS, simulate
from headrace.studio.learn.simulation import Choice, Setup, Simulation, Slider
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings

EACH = pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda each: each.name)
TOKEN = {"authorization": "Bearer t"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    settings = StudioSettings(log="file:/nowhere", token="t")
    with TestClient(studio(settings), base_url=settings.origin, headers=TOKEN) as client:
        yield client


def corners(simulation: Simulation) -> Iterator[Setup]:
    """Setups with each setting at its ends, the others at their defaults."""
    yield simulation.setup({})
    for setting in simulation.settings:
        match setting:
            case Slider():
                ends = [f"{setting.low:g}", f"{setting.high:g}"]
            case Choice():
                ends = [value for value, _ in setting.options]
        for end in ends:
            yield simulation.setup({setting.name: end})


@EACH
def test_a_frame_is_a_pure_function(simulation: Simulation) -> None:
    setup = simulation.setup({})
    last = simulation.steps(setup)
    for step in (0, last // 2, last):
        assert simulation.frame(setup, step) == simulation.frame(setup, step)


@EACH
def test_every_setting_can_be_taken_to_its_ends(simulation: Simulation) -> None:
    for setup in corners(simulation):
        last = simulation.steps(setup)
        for step in {0, 1, last // 2, last}:
            frame = simulation.frame(setup, step)
            assert (frame.step, frame.steps) == (step, last)
            assert frame.caption
            names = [number.name for number in frame.numbers]
            assert len(names) == len(set(names))


@EACH
def test_the_page_shows_the_numbers_of_the_api(client: TestClient, simulation: Simulation) -> None:
    setup = simulation.setup({})
    step = simulation.steps(setup) * 2 // 3
    query = simulation.query(setup, step)
    given = client.get(f"/api/learn/{simulation.name}?{query}").json()
    shown = client.get(f"/learn/{simulation.name}?{query}").text
    frame = simulation.frame(setup, step)
    assert given["numbers"] == {number.name: number.value for number in frame.numbers}
    on_page = dict(re.findall(r'data-fact="([^"]*)">([^<]*)<', shown))
    assert on_page == {number.name: number.text for number in frame.numbers}


@EACH
def test_an_address_restores_the_frame(simulation: Simulation) -> None:
    for setup in corners(simulation):
        query = dict(re.findall(r"([^&=]+)=([^&]*)", simulation.query(setup, 3)))
        assert simulation.setup(query) == setup


@EACH
def test_each_prompt_leads_to_a_frame(client: TestClient, simulation: Simulation) -> None:
    assert simulation.prompts
    for prompt in simulation.prompts:
        answer = client.get(f"/learn/{simulation.name}?{simulation.prompted(prompt)}")
        assert answer.status_code == 200, prompt.text


@EACH
def test_an_exported_test_passes_and_fails_if_a_number_is_another(
    client: TestClient, simulation: Simulation
) -> None:
    step = simulation.steps(simulation.setup({})) // 2
    source = client.get(f"/learn/{simulation.name}/test?step={step}").text
    names: dict[str, object] = {}
    exec(compile(source, "exported", "exec"), names)  # noqa: S102
    (test,) = (found for name, found in names.items() if name.startswith("test_"))
    test()  # type: ignore[operator]
    wrong = re.sub(r"== (\d+)$", lambda found: f"== {int(found[1]) + 1}", source, flags=re.M)
    assert wrong != source
    exec(compile(wrong, "exported", "exec"), names)  # noqa: S102
    with pytest.raises(AssertionError):
        names[test.__name__]()  # type: ignore[attr-defined, operator]


@EACH
@pytest.mark.parametrize(
    "query",
    ["seed=-1", "seed=x", "step=1e3", "seed=99999999999999", "do=<script>", "do=1:nothing"],
)
def test_a_wrong_address_is_explained(
    client: TestClient, simulation: Simulation, query: str
) -> None:
    answer = client.get(f"/learn/{simulation.name}?{query}")
    assert answer.status_code == 400
    assert "<script>" not in answer.text
    assert 'role="alert"' in answer.text


@EACH
def test_a_setting_out_of_range_is_refused(simulation: Simulation) -> None:
    for setting in simulation.settings:
        with pytest.raises(InvalidSetting, match=setting.name):
            simulation.setup({setting.name: "1e99"})


def test_an_unknown_simulation_is_refused(client: TestClient) -> None:
    answer = client.get("/learn/nothing")
    assert (answer.status_code, "There are:" in answer.text) == (404, True)
    with pytest.raises(UnknownPage):
        simulate("nothing", step=0)
