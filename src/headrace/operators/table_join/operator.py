"""Table-table join in words: what is joined by which columns, what is held, what is shown."""

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
            "inner": "only rows that find all others",
            "left": f"every row of {topics[0]}, with nulls where it finds no other",
            "right": f"every row of {topics[-1]}, with nulls where no other finds it",
            "full": "every row of both, with nulls where there is no other",
        }
        facts.append(("shows", shows[stream.how]))
        for table in stream.tables:
            key = ", ".join(table.key)
            facts.append(("holds", f"the newest version of each {key} of {table.topic}, for good"))
        facts.append(("emits", "whenever one of its tables changes; no row is ever final"))
        return facts

    def needs_commits(self, stream: TableJoin) -> str | None:
        return "what it keeps from batch to batch goes by commits"

    def refuses_real_time(self, stream: TableJoin) -> Refusal | None:
        return Refusal("joined tables are a view, which is stored batch by batch", IN_BATCHES)
