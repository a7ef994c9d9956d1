"""`headrace` and `headrace.log` export exactly their `__all__`, in order."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import headrace
import headrace.log


@pytest.mark.parametrize("module", [headrace, headrace.log], ids=["headrace", "headrace.log"])
def test_all_is_sorted_and_everything_in_it_is_there(module: types.ModuleType) -> None:
    names = list(module.__all__)
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in names:
        assert getattr(module, name) is not None


def test_nothing_public_of_the_log_is_left_out() -> None:
    public = {
        name
        for name, value in vars(headrace.log).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(headrace.log.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headrace.nothing  # noqa: B018


def test_tab_completion_lists_every_public_name() -> None:
    listed = dir(headrace)
    assert listed == sorted(listed)
    assert set(headrace.__all__) <= set(listed)
    assert [name for name in listed if not name.startswith("__")] == sorted(headrace.__all__)


def test_tab_completion_loads_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, headrace as hr; names = dir(hr); "
        "print('tumbling' in names, 'pyspark' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False False\n"
