"""The docs in the studio: each simulation leads to a page about its idea."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
from fastapi.testclient import TestClient

from headrace.studio.learn.catalog import SIMULATIONS
from headrace.studio.server import studio
from headrace.studio.settings import StudioSettings


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    settings = StudioSettings(log="file:/nowhere", token="t")
    headers = {"authorization": "Bearer t"}
    with TestClient(studio(settings), base_url=settings.origin, headers=headers) as client:
        yield client


@pytest.mark.parametrize("concept", [*sorted({each.concept for each in SIMULATIONS}), "tour.md"])
def test_a_concept_and_its_pictures_are_there(client: TestClient, concept: str) -> None:
    answer = client.get(f"/docs/{concept}")
    assert answer.status_code == 200
    for picture in re.findall(r'<img src="([^"]+)"', answer.text):
        assert client.get(urljoin(f"/docs/{concept}", picture)).status_code == 200, picture


@pytest.mark.parametrize(
    "path", ["nothing.md", "../README.md", "..%2fREADME.md", "..%2fpyproject.toml", "site.css"]
)
def test_nothing_but_the_docs_is_served(client: TestClient, path: str) -> None:
    assert client.get(f"/docs/{path}").status_code == 404
