"""What made a streaming query fail, told as an error of ours."""

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
"""How Spark tells that a Python worker has died, or a worker of a cluster."""


@contextlib.contextmanager
def answering(note: Callable[[BaseException], None]) -> Iterator[None]:
    """Have what fails in a batch that Spark calls for noted, and Spark hear of it.

    Spark waits for an answer, and only an ordinary error is one.
    """
    try:
        yield
    except Exception as error:
        note(error)
        raise
    except BaseException as error:
        note(error)
        raise PipelineFailed(f"The batch was given up: {error!r}") from error


def failure_of(
    step: str, checkpoint: Path | None, ours: Exception | None, sparks: Exception
) -> HeadraceError:
    """The error to raise for what a batch of ours raised, if it did, or else for what Spark says.

    Its detail `by_chance` says that it may not happen again.
    """
    if isinstance(ours, HeadraceError):
        return ours
    text = str(ours or sparks)
    if (told := _told_by_worker(text)) is not None:
        return told
    hint = "What was stored before is as it was; run it again to go on from there."
    if checkpoint is not None:
        hint += (
            f" If it fails in the same way at once, {checkpoint} may be damaged: without it, "
            "everything is computed again from the log"
        )
    return PipelineFailed(
        f"Step {step!r} failed: {_first_line(text)}",
        hint=hint,
        by_chance=ours is None or any(death in text for death in _DEATHS),
    )


def java_is_gone(step: str) -> PipelineFailed:
    """The error for a Spark that does not answer any more."""
    return PipelineFailed(
        f"Step {step!r} failed: the Java process that Spark runs in is gone",
        hint="Was it killed, or short of memory? Run it again to go on from where it was",
    )


def _told_by_worker(text: str) -> HeadraceError | None:
    """Our own error, where a worker raised it and Spark has only its text."""
    found = re.search(r"headrace\.errors\.(\w+): (.+)", text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(found[2].rstrip("."))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if line.startswith("[") or "Error" in line), "")
    return (chosen or (lines[0] if lines else "unknown")).split(" SQLSTATE")[0][:500]
