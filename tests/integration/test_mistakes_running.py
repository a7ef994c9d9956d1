"""Mistakes that only a run can find: errors name the user's line, and not the checkpoint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import InvalidPipeline, NotALog, PipelineFailed
from tests import spark
from tests.waiting import left

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def counted(expression: str) -> hr.App:
    app = hr.App("shop")
    columns = "page string, at timestamp"
    clicks = app.topic("clicks", schema=columns, event_time="at")
    pages = hr.derive(clicks, n=expression)
    lateness = hr.Lateness(timedelta(0), timedelta(0))
    minute = hr.tumbling(timedelta(minutes=1))
    app.view("hits", hr.aggregate(pages, by="n", window=minute, lateness=lateness, hits=hr.count()))
    return app


def test_what_spark_refuses_is_said_at_the_users_line_and_is_not_the_checkpoints_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with hr.open_log(f"file:{tmp_path / 'data'}") as log:
        app = counted("uper(page)")
        with pytest.raises(InvalidPipeline, match="uper") as refused:
            hr.run(app, log, spark=spark.shared())
        assert "\n" not in refused.value.message
        assert "hr.derive(clicks, n=expression)" in refused.value.hint
        log.producer().send("clicks", {"page": "home", "at": TIME})
        with pytest.raises(PipelineFailed, match="CAST_INVALID_INPUT") as failed:
            hr.run(counted("CAST(page AS int)"), log, spark=spark.shared())
        assert "try_cast" in failed.value.hint
        assert "checkpoint" not in str(failed.value)
        # Nothing was stored, so the corrected application begins anew.
        corrected = counted("try_cast(page AS int)")
        assert hr.preflight(corrected, log).steps[0].status == "new"
        (progress,) = hr.run(corrected, log, spark=spark.shared())
        assert progress.law.counted == 1
        assert hr.preflight(counted("page"), log).steps[0].status == "changed"
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_a_log_that_is_removed_under_a_run_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with hr.start(counted("page"), f"file:{folder}", spark=spark.shared()) as running:
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(NotALog, match="was removed or renamed"):
            running.wait(left())
