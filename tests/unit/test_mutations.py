"""The table of mutations matches the current source and tests."""

from __future__ import annotations

import ast
import functools
from collections import Counter

import pytest

from tests.mutations.table import ROOT, Mutation, mutations

TABLE = list(mutations())
SUITES = {"StoreSuite": "src/headrace/store/suite.py"}
"""The files of suites that test classes inherit."""


@pytest.mark.parametrize("mutation", TABLE, ids=str)
def test_a_mutation_still_applies_and_its_tests_exist(mutation: Mutation) -> None:
    changed = mutation.apply((ROOT / mutation.path).read_text())
    assert mutation.new != mutation.old
    compile(changed, mutation.file, "exec")
    assert bool(mutation.tests) != bool(mutation.equivalent), "tests, or the reason for none"
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _tests_in(file), f"{file} has no {name}"


@functools.cache
def _tests_in(file: str) -> set[str]:
    """The tests of a file, with those that its classes have from a suite."""
    there: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef):
            there.add(node.name)
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            own = {test for base in bases if base in SUITES for test in _tests_in(SUITES[base])}
            there |= {f"{node.name}::{test}" for test in own}
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            there |= {f"{ast.unparse(target)}::runTest" for target in node.targets}
    return there


def test_no_mutation_is_in_the_table_twice() -> None:
    twice = [what for what, n in Counter((m.file, m.old, m.new) for m in TABLE).items() if n > 1]
    assert not twice
    assert len({str(mutation) for mutation in TABLE}) == len(TABLE)
