"""Table-table join explained: what it joins, holds and shows."""

from __future__ import annotations

from headrace.log import Log
from headrace.operators.contract import IN_BATCHES, Fact, Operator, Refusal
from headrace.operators.table_join.declare import TableJoin


class TableJoinOperator(Operator[TableJoin]):
    """A live view of joined tables."""

    package = "headrace.operators.table_join"

    def facts(self, stream: TableJoin, log: Log | None) -> list[Fact]:
        topics = [table.topic for table in stream.tables]
        facts = []
        for link in stream.links:
            equal = " and ".join(
                f"its {theirs} is the {mine} of {topics[stream.looked_up_from(link)]}"
                for mine, theirs in link.on
            )
            found = "the row" if link.by_key else "each row"
            facts.append(("joins", f"{found} of {link.table.topic} where {equal}"))
        shows = {
            "inner": "only rows with a match in every table",
            "left": f"every row of {topics[0]}, with nulls if it has no match",
            "right": f"every row of {topics[-1]}, with nulls if it has no match",
            "full": "every row of both, with nulls if it has no match",
        }
        if stream.links:
            facts.append(("shows", shows[stream.how]))
        for table in stream.tables:
            key = ", ".join(table.key)
            facts.append(("holds", f"the newest version of each {key} of {table.topic}, for good"))
        when = "one of its tables changes" if stream.links else "a newer row of a key arrives"
        facts.append(("emits", f"whenever {when}; no row is ever final"))
        return facts

    def refuses_real_time(self, stream: TableJoin) -> Refusal | None:
        return Refusal("joined tables are a view, which is stored batch by batch", IN_BATCHES)
