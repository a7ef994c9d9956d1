"""What joined tables do, in words."""

from __future__ import annotations

from headrace.operators.table_join.declare import TableJoin

Fact = tuple[str, str]


def table_join_facts(join: TableJoin) -> list[Fact]:
    """What is joined by which columns, what is held, and what is told of."""
    topics = [table.topic for table in join.tables]
    facts = []
    for link in join.links:
        equal = " and ".join(
            f"its {theirs} is the {mine} of {topics[join.looked_up_from(link)]}"
            for mine, theirs in link.on
        )
        found = "the row" if link.by_key else "each row"
        facts.append(("joins", f"{found} of {link.table.topic} where {equal}"))
    alone = {
        "inner": "only rows that find all others",
        "left": f"every row of {topics[0]}, with nulls where it finds no other",
        "right": f"every row of {topics[-1]}, with nulls where no other finds it",
        "full": "every row of both, with nulls where there is no other",
    }
    facts.append(("shows", alone[join.how]))
    for table in join.tables:
        key = ", ".join(table.key)
        facts.append(("holds", f"the newest version of each {key} of {table.topic}, for good"))
    facts.append(("emits", "whenever one of its tables changes; no row is ever final"))
    return facts
