"""Change data capture against dual writes: one database, its change stream, and its stores."""

from __future__ import annotations

from headrace.studio.learn.captured_shop import (
    LATE,
    STEPS,
    STOPPED,
    WRITING,
    Copy,
    Entry,
    Moment,
    history,
)
from headrace.studio.learn.frame import (
    Arrow,
    Box,
    Cell,
    Flow,
    Frame,
    Grid,
    Lane,
    Lanes,
    Number,
    Pointer,
)
from headrace.studio.learn.simulation import Action, Prompt, Setup, Simulation, Slider

_SHOWN = 16
"""Records of the topic that a frame shows."""
_KINDS = {"search": "a", "cache": "b", "warehouse": "c", LATE: "d"}
_OPERATIONS = {"create": "good", "update": "now", "delete": "bad", "tombstone": "late"}


def frame(setup: Setup, step: int) -> Frame:
    """The shop and its stores after so many seconds."""
    now = history(setup)[step]
    panels = (_flow(now), _lanes(now), _grid(now))
    return Frame(step, STEPS, _caption(now, step), _numbers(now), panels)


def _numbers(now: Moment) -> tuple[Number, ...]:
    tombstones = sum(entry.op == "tombstone" for entry in now.entries)
    return (
        Number("rows in the database", len(now.database)),
        Number("records in the topic", len(now.entries), hint="Those that are still kept"),
        Number("tombstones", tombstones),
        *(
            Number(
                f"{name} lag",
                copy.lag,
                kind="good" if not copy.lag else "bad" if not copy.running else "warn",
                hint="Changes that the store has not read yet",
            )
            for name, copy in now.copies.items()
        ),
        Number(
            "captured: wrong",
            sum(now.differing(copy.rows) for copy in now.copies.values() if not copy.lag),
            kind="good",
            hint="Products that differ from the database, in stores that have caught up",
        ),
        Number("dual writes: wrong", wrong := _wrong(now), kind="bad" if wrong else "good"),
    )


def _wrong(now: Moment) -> int:
    """Products that differ from the database, in all stores that the application writes itself."""
    return sum(now.differing(rows) for rows in now.dual.values())


_SAID = {
    "stop": f"{STOPPED} is down. The log keeps its position.",
    "start": f"{STOPPED} is back, and reads on from its position.",
    "join": f"A new store, {LATE}, reads the topic from its first record.",
    "compact": "The topic is compacted: the last change of each product is left.",
    "delete": "",
}


def _caption(now: Moment, step: int) -> str:
    if step == 0:
        return "The database is empty, and three stores wait. Press play, or step forward."
    said = [_SAID[act] for act in now.done if _SAID[act]]
    wrote = [f"In the database {', then '.join(now.wrote)}."] if now.wrote else []
    if not wrote and not said:
        return "Nothing is written any more. Stores that follow the changes catch up."
    return " ".join((*wrote, *said))


def _flow(now: Moment) -> Flow:
    boxes = [
        Box("app", "application", 0, 1, ("writes",), "c"),
        Box("db", "database", 1, 0, (f"{len(now.database)} rows",), "a"),
        Box("topic", "topic of changes", 2, 0, (f"{len(now.entries)} records",), "a"),
    ]
    arrows = [Arrow("app", "db"), Arrow("db", "topic", "captured")]
    for place, (name, copy) in enumerate(now.copies.items()):
        words = f"lag {copy.lag}" if copy.running else f"down, lag {copy.lag}"
        kind = "bad" if not copy.running else "warn" if copy.lag else "good"
        boxes.append(Box(name, name, 3, place, (f"{len(copy.rows)} rows", words), kind))
        arrows.append(Arrow("topic", name, "", kind))
    first = len(now.copies)
    for place, (name, rows) in enumerate(now.dual.items()):
        wrong = now.differing(rows)
        told = f"{wrong} wrong" if wrong else "equal"
        box = f"dual {name}"
        boxes.append(
            Box(box, name, 3, first + place, ("dual write", told), "bad" if wrong else "good")
        )
        arrows.append(Arrow("app", box, "", "bad" if wrong else ""))
    lags = ", ".join(f"{name} {copy.lag}" for name, copy in now.copies.items())
    return Flow(
        "One write and its change stream (above), dual writes (below)",
        f"Lag of the stores that follow the changes: {lags}. Products that are wrong in the stores "
        f"that the application writes itself: {_wrong(now)}",
        tuple(boxes),
        tuple(arrows),
    )


def _lanes(now: Moment) -> Lanes:
    first = max(0, now.end - _SHOWN)
    there = {entry.offset: entry for entry in now.entries}
    cells = tuple(_cell(there.get(offset), offset) for offset in range(first, now.end))
    read = ", ".join(f"{name} is at {copy.position}" for name, copy in now.copies.items())
    return Lanes(
        "The topic: create, update or delete of a product, and † for a tombstone",
        f"{len(now.entries)} records are kept; {read}",
        (
            Lane("changes", cells, first=first),
            *(_lane(name, copy, first, now.end) for name, copy in now.copies.items()),
        ),
    )


def _cell(entry: Entry | None, offset: int) -> Cell:
    if entry is None:
        return Cell("", "muted", f"offset {offset}: compacted")
    text = f"†{entry.product}" if entry.op == "tombstone" else f"{entry.op[0]}{entry.product}"
    price = "" if entry.price is None else f", price {entry.price}"
    hint = f"offset {offset}: {entry.op} product {entry.product}{price}"
    return Cell(text, _OPERATIONS.get(entry.op, ""), hint)


def _lane(name: str, copy: Copy, first: int, end: int) -> Lane:
    cells = tuple(
        Cell("✓" if offset < copy.position else "", "good" if offset < copy.position else "muted")
        for offset in range(first, end)
    )
    at = max(first, copy.position)
    note = f"{copy.lag} behind" if copy.running else f"down, {copy.lag} behind"
    return Lane(name, cells, (Pointer(at, str(copy.position), _KINDS[name]),), first, note)


def _grid(now: Moment) -> Grid:
    """Each product, as every store has it."""
    stores = [copy.rows for copy in now.copies.values()]
    dual = list(now.dual.values())
    products = sorted({*now.database, *(key for rows in (*stores, *dual) for key in rows)})
    rows, kinds = [], []
    for product in products:
        wanted = now.database.get(product)
        cells = [_price(rows.get(product)) for rows in (now.database, *stores, *dual)]
        rows.append((str(product), *cells))
        kinds.append("bad" if any(each.get(product) != wanted for each in dual) else "")
    names = (*now.copies, *(f"dual: {name}" for name in now.dual))
    return Grid(
        "Prices in every store. Red: a dual write has left something else than the database has",
        ("product", "database", *names),
        tuple(rows),
        tuple(kinds),
    )


def _price(price: int | None) -> str:
    return "–" if price is None else str(price)


SIMULATION = Simulation(
    name="change-capture",
    title="Change data capture and dual writes",
    idea="An application that writes to its database and then to a search index, a cache and a "
    "warehouse leaves them different for good if one write fails or two overtake each other. With "
    "change data capture it writes once, and every store follows the changes in their order.",
    settings=(
        Slider("fails", "Second writes that go wrong", 0, 50, 20, 5, "%"),
        Slider("search", "Search", 0.5, 4, 2, 0.5, "changes/s"),
        Slider("cache", "Cache", 0.5, 4, 4, 0.5, "changes/s"),
        Slider("warehouse", "Warehouse", 0.5, 4, 1, 0.5, "changes/s"),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt(
            "Run to the end: followers catch up, dual writes stay wrong.", STEPS, {"warehouse": 2}
        ),
        Prompt(
            "Take search down for six seconds: it is behind, and never wrong.",
            14,
            {},
            ((6, "stop"), (12, "start")),
        ),
        Prompt("Delete a product: a delete, and its tombstone.", 11, {}, ((10, "delete"),)),
        Prompt(
            "Compact the topic, and let a new store read it: it has every product.",
            STEPS,
            {"warehouse": 4},
            ((12, "compact"), (13, "join")),
        ),
    ),
    look_for=(
        "A store that follows the changes is behind, and equal once it has caught up.",
        "With no failing writes at all, dual writes are right. One in twenty is enough to spoil "
        "them, and nothing tells.",
        "Compaction leaves the last change of each product. A tombstone says that there is none.",
    ),
    question="A store was down while a product was deleted and the topic was compacted. How does "
    "it learn of the delete?",
    answer="By the tombstone: compaction keeps it, as the last record of its key, for the time "
    "that the topic's settings say. A store that is down for longer has to be built again.",
    concept="concepts/questions.md",
    actions=(
        Action("stop", "Stop search", "The store closes"),
        Action("start", "Start it again", "It continues at its position"),
        Action("delete", "Delete a product", "The one with the lowest number"),
        Action("compact", "Compact the topic", "Only the last change of each key is kept"),
        Action("join", "A new store", "It reads from the first record"),
    ),
    start=WRITING,
)
