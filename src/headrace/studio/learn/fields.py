"""The form of a simulation: its fields are its address, and each change fetches the frame."""

from __future__ import annotations

import htpy as h
from htpy import Element, Node

from headrace.studio.learn.simulation import Choice, Slider, Value


def form(selector: str, path: str, *content: Node) -> Element:
    """A form that replaces the frame of its page. Without a script it is submitted."""
    return h.form(
        selector,
        {"hx-get": path, "hx-trigger": "input delay:20ms, submit"},
        action=path,
        method="get",
        hx_target="#frame",
        hx_select="#frame",
        hx_swap="outerHTML",
        hx_replace_url="true",
        hx_sync="this:replace",
    )[content]


def field(setting: Slider | Choice, value: Value) -> Element:
    """The field of a setting."""
    match setting:
        case Choice():
            options = [
                h.option(value=each, selected=each == value)[label]
                for each, label in setting.options
            ]
            return h.label(".field", title=setting.hint or None)[
                h.span[setting.label], h.select(name=setting.name)[options]
            ]
        case Slider():
            shown = f"{value:g}" if not isinstance(value, str) else value
            unit = f" {setting.unit}".rstrip()
            # By its id: the first field inside is the output, which would have the name instead.
            return h.label(".field", title=setting.hint or None, for_=f"set-{setting.name}")[
                h.span[setting.label, " ", h.output(data_for=setting.name)[shown], unit],
                h.input(
                    id=f"set-{setting.name}",
                    type="range",
                    name=setting.name,
                    min=f"{setting.low:g}",
                    max=f"{setting.high:g}",
                    step=f"{setting.by:g}",
                    value=shown,
                ),
            ]
