"""The table of mutations matches the current source and tests."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations.table import ROOT, Mutation, mutations

TABLE = list(mutations())


@pytest.mark.parametrize("mutation", TABLE, ids=str)
def test_a_mutation_still_applies_and_its_tests_exist(mutation: Mutation) -> None:
    changed = mutation.apply((ROOT / mutation.path).read_text())
    assert mutation.new != mutation.old
    compile(changed, mutation.file, "exec")
    assert bool(mutation.tests) != bool(mutation.equivalent), "tests, or the reason for none"
    for test in mutation.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in there, f"{file} has no {name}"


def test_no_mutation_is_in_the_table_twice() -> None:
    twice = [what for what, n in Counter((m.file, m.old, m.new) for m in TABLE).items() if n > 1]
    assert not twice
    assert len({str(mutation) for mutation in TABLE}) == len(TABLE)
