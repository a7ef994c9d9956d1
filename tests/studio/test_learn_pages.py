"""The simulations in a real browser: each opens, plays, and shows what the code behind it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from headrace.studio.learn.catalog import SIMULATIONS
from headrace.studio.learn.simulation import Simulation, Slider
from headrace.studio.settings import StudioSettings
from tests.studio.browser import Watched
from tests.studio.serving import serving

EACH = pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda each: each.name)


@pytest.fixture(scope="module")
def address() -> Iterator[StudioSettings]:
    with serving(StudioSettings(log="file:/nowhere")) as settings:
        yield settings


@pytest.fixture
def watched(browser: Browser, address: StudioSettings) -> Iterator[Watched]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(address.address)
        watched = Watched(page)
        yield watched
        assert watched.errors == []


@EACH
def test_a_simulation_shows_what_the_code_says_to_everybody(
    watched: Watched, address: StudioSettings, simulation: Simulation
) -> None:
    page = watched.page
    # Every second one is read in the dark: their colours are the same.
    dark = SIMULATIONS.index(simulation) % 2
    page.emulate_media(color_scheme="dark" if dark else "light")
    watched.open(f"{address.origin}/learn/{simulation.name}?step=4")
    sliders = [each.label for each in simulation.settings if isinstance(each, Slider)]
    for label in ("Step", *sliders):
        expect(page.get_by_role("slider", name=label).first).to_be_visible()
    setup = simulation.setup({})
    for press, step in (("ArrowRight", 5), ("ArrowRight", 6), ("ArrowLeft", 5)):
        page.keyboard.press(press)
        expect(page.locator("#frame")).to_have_attribute("data-step", str(step))
        for number in simulation.frame(setup, step).numbers:
            expect(page.locator(f'[data-fact="{number.name}"]')).to_have_text(number.text)
    assert "step=5" in page.url
    found = Axe().run(page).response["violations"]
    faults = [
        (each["id"], [node["target"] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert faults == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_simulation_plays_by_itself(watched: Watched, address: StudioSettings) -> None:
    page = watched.page
    watched.open(f"{address.origin}/learn/windows?step=0")
    page.get_by_role("button", name="Play or pause").click()
    # It goes on while it is looked at: any later step will do.
    expect(page.locator("#frame")).not_to_have_attribute("data-step", "0")
    expect(page.locator("#frame")).not_to_have_attribute("data-step", "1")
    page.get_by_role("button", name="Play or pause").click()
