"""Turn the failure of a streaming query into an error of headrace."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace import errors
from headrace.errors import HeadraceError, PipelineFailed

_DEATHS = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "crashed",
    "Connection reset",
    "EOFException",
    "Stream closed",
    "Broken pipe",
    "ExecutorLostFailure",
    "FetchFailed",
)
"""Texts of Spark that mean that a Python worker or an executor died."""


@contextlib.contextmanager
def answering(note: Callable[[BaseException], None]) -> Iterator[None]:
    """Note what a batch function raises, and raise it as an ordinary error.

    Spark waits for an answer, and only an `Exception` is one.
    """
    try:
        yield
    except Exception as error:
        note(error)
        raise
    except BaseException as error:
        note(error)
        raise PipelineFailed(f"The batch was aborted: {error!r}") from error


def failure_of(
    step: str, checkpoint: Path | None, ours: Exception | None, sparks: Exception
) -> HeadraceError:
    """The error to raise: from what our batch function raised, or else from what Spark says.

    Its detail `by_chance` is True if a restart may get past it.
    """
    if isinstance(ours, HeadraceError):
        return ours
    text = str(ours or sparks)
    if (raised := _raised_by_worker(text)) is not None:
        return raised
    hint = "Stored results are intact. Run it again to resume."
    if checkpoint is not None:
        hint += (
            f" If it fails again at once, {checkpoint} may be damaged: without it, "
            "everything is computed again from the log"
        )
    return PipelineFailed(
        f"Step {step!r} failed: {_first_line(text)}",
        hint=hint,
        by_chance=ours is None or any(death in text for death in _DEATHS),
    )


def java_is_gone(step: str) -> PipelineFailed:
    """The error for a Spark that no longer answers."""
    return PipelineFailed(
        f"Step {step!r} failed: the Java process that Spark runs in is gone",
        hint="Was it killed, or out of memory? Run it again to resume",
    )


def _raised_by_worker(text: str) -> HeadraceError | None:
    """The error of headrace that a worker raised, parsed from Spark's text."""
    found = re.search(r"headrace\.errors\.(\w+): (.+)", text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(found[2].rstrip("."))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if line.startswith("[") or "Error" in line), "")
    return (chosen or (lines[0] if lines else "unknown")).split(" SQLSTATE")[0][:500]
