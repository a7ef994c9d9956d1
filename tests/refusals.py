"""The text of a refusal, for tests that declare and expect in one line."""

from __future__ import annotations

from headrace.errors import HeadraceError


def text_of(error: HeadraceError) -> str:
    """Message and hint without the user's line, which would quote the expected words as well."""
    text, found, line = str(error).partition(" See ")
    assert found and line, f"the error does not name the user's line: {text}"
    return text
