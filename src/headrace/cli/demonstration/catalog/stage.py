"""Set up the catalog demo: a shop, the capture, the pipeline, and the check at the end."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.cdc.attachment import Attachment, remember
from headrace.cdc.opening import open_source
from headrace.cli.demonstration.catalog.account import Account, account
from headrace.cli.demonstration.catalog.followers import Followers
from headrace.cli.demonstration.catalog.play import Play
from headrace.cli.demonstration.catalog.screen import draw, plain_line
from headrace.cli.demonstration.catalog.shop import PREFIX, TABLES, Shop
from headrace.cli.demonstration.stage import pipeline_file, shown
from headrace.cli.loading import load_app
from headrace.log import open_log
from headrace.log.home import folder_of

_PAUSE, _PAUSE_LIVE = 2.0, 6.0
"""Seconds in which one can watch what an act does."""


def settle(url: str) -> Path:
    """The folder of the shop, and the places of its cache and warehouse for every process."""
    folder = folder_of(url).resolve()
    folder = folder.with_name(f"{folder.name}-shop")
    os.environ.setdefault("CATALOG_CACHE", str(folder / "cache"))
    os.environ.setdefault("CATALOG_WAREHOUSE", str(folder / "warehouse"))
    return folder


def perform(url: str, *, events: int, once: bool, quiet: bool) -> Account:
    """Run the demo on a log, with so many products, and compare the stores at the end."""
    folder = settle(url)
    reference = f"{pipeline_file('catalog.py')}:app"
    pipeline = load_app(reference)
    shop = Shop(folder / "shop.db", events)
    shop.open()
    with open_log(url) as log:
        attachment = Attachment(PREFIX, "sqlite", str(shop.path), TABLES)
        with open_source(attachment) as source:
            source.attach()
        remember(log, attachment)
        cache = "redis" if os.environ["CATALOG_CACHE"].startswith("redis") else "cache"
        followers = Followers(url, reference, folder, cache)
        pause = _PAUSE if once else _PAUSE_LIVE
        play = Play(log, pipeline, shop, attachment, followers, reference=reference, pause=pause)
        with shown(play.scene, draw, plain_line, quiet=quiet):
            play.run()
        return account(log, pipeline, shop, play)
