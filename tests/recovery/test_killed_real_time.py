"""Real time, killed repeatedly: every alert is there, and its id makes it unique."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.log import Log, open_log
from headrace.pipeline.stream import sources
from headrace.servers.kafka import ClusterState
from tests.live import Live, declared, expected, once, rows_in, uses
from tests.property.flagging import JUDGES

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(3_600)]

KILLS = 6
USES = 60


def feed(log: Log, seed: int) -> None:
    with log.producer() as producer:
        for use in uses(USES, seed):
            producer.send("killed.uses", use)


def leave_unfinished(folder: Path) -> None:
    """Recreate the files of a kill at the moment when Spark records the end of a batch."""
    for commits in folder.glob("state/*/apps/killed/live/*/commits"):
        number = sum(path.name.isdigit() for path in commits.iterdir())
        (commits / f".{number}.0-1-2.tmp").touch()
        (commits / f"..{number}.0-1-2.tmp.crc").touch()


def test_alerts_are_the_oracles_once_by_id_however_often_it_is_killed(
    broker: ClusterState, tmp_path: Path
) -> None:
    file = tmp_path / "killed_app.py"
    step, _ = declared(file, "killed")
    with Live(f"{file}:app", broker.url, tmp_path) as live, open_log(broker.url) as log:
        for source in sources(step):
            log.ensure_topic(source.topic)

        def alerted(seed: int) -> bool:
            return any(row["use"].startswith(f"{seed}-") for row in rows_in(log, "killed.alerts"))

        for seed in range(KILLS):
            live.start()
            feed(log, seed)
            # In the middle of a batch: Spark's checkpoint would end it.
            live.until(lambda seed=seed: alerted(seed))  # type: ignore[misc]
            live.kill()
            leave_unfinished(tmp_path)
        live.start()
        feed(log, KILLS)
        meant = expected(log, step, JUDGES)
        ids = {alert["alert"] for alert in meant.alerts}
        late = {row["use"] for _, row, _ in meant.late}
        live.until(lambda: ids <= once(rows_in(log, "killed.alerts")).keys())
        live.until(lambda: late <= {row["use"] for row in rows_in(log, "killed.late")})
        said = live.stop()
        assert said["killed.alerts"]["holds"]
        alerts = rows_in(log, "killed.alerts")
        assert once(alerts) == once(meant.alerts)
        assert {row["use"] for row in rows_in(log, "killed.late")} == late
        # Without ids, a reader would count these as new alerts: the test can see them.
        assert len(alerts) > len(ids)
