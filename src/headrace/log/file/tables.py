"""The tables of the catalog, documented in docs/reference/log-format.md, and their upgrades."""

from __future__ import annotations

import apsw

SCHEMA = """
CREATE TABLE setting (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE head (
    number INTEGER NOT NULL,
    time INTEGER NOT NULL,
    synced INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE rollback (epoch INTEGER PRIMARY KEY, first INTEGER NOT NULL);

CREATE TABLE topic (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    columns TEXT,
    key TEXT,
    event_time TEXT,
    settings TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    uid INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE partition (
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL DEFAULT 0,
    end INTEGER NOT NULL DEFAULT 0,
    segment INTEGER,
    gaps INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;

CREATE TABLE segment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    columns TEXT,
    sparse INTEGER NOT NULL DEFAULT 0,
    length INTEGER NOT NULL,
    synced INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    closed INTEGER,
    compacted INTEGER NOT NULL DEFAULT 0,
    location TEXT
);
CREATE INDEX segment_by_partition ON segment (topic, partition);
CREATE INDEX segment_unsynced ON segment (id) WHERE synced < length;

CREATE TABLE chunk (
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,
    end INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL,
    length INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, first)
) WITHOUT ROWID;
CREATE INDEX chunk_by_commit ON chunk (topic, partition, number);
CREATE INDEX chunk_by_segment ON chunk (segment);

CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    producer TEXT,
    sequence INTEGER,
    clock INTEGER
);
CREATE INDEX commits_by_time ON commits (time);
CREATE INDEX commits_by_producer ON commits (producer, sequence) WHERE producer IS NOT NULL;

CREATE TABLE topic_commit (
    topic INTEGER NOT NULL,
    number INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    before INTEGER,
    after INTEGER,
    oldest INTEGER,
    misplaced INTEGER NOT NULL,
    bound INTEGER,
    PRIMARY KEY (topic, number)
) WITHOUT ROWID;

CREATE TABLE producer (
    id TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    number INTEGER,
    used INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE consumer_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL DEFAULT 0,
    assignor TEXT NOT NULL
);

CREATE TABLE member (
    id TEXT PRIMARY KEY,
    consumer_group INTEGER NOT NULL,
    instance TEXT,
    topics TEXT NOT NULL,
    session INTEGER NOT NULL,
    heartbeat INTEGER NOT NULL,
    boot TEXT NOT NULL DEFAULT '',
    beat INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX member_by_group ON member (consumer_group);

CREATE TABLE claim (
    consumer_group INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    owner TEXT,
    target TEXT,
    PRIMARY KEY (consumer_group, topic, partition)
) WITHOUT ROWID;

CREATE TABLE group_offset (
    consumer_group INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition)
) WITHOUT ROWID;

CREATE TABLE garbage (location TEXT PRIMARY KEY) WITHOUT ROWID;
"""

MARKS = """
CREATE TABLE mark (
    topic INTEGER NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    PRIMARY KEY (topic, value, number, partition, offset)
) WITHOUT ROWID;
"""
"""Where the rows of a topic are by the values of its indexed column."""

QUEUES = """
CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    topic INTEGER NOT NULL,
    settings TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0,
    boot TEXT NOT NULL DEFAULT '',
    held INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX queue_by_topic ON queue (topic);

CREATE TABLE queue_partition (
    queue INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    indexed INTEGER NOT NULL,
    PRIMARY KEY (queue, partition)
) WITHOUT ROWID;

CREATE TABLE message (
    queue INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    number INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    key,
    state INTEGER NOT NULL,
    due INTEGER,
    deliveries INTEGER NOT NULL DEFAULT 0,
    token INTEGER,
    worker TEXT,
    expires INTEGER,
    PRIMARY KEY (queue, partition, offset)
) WITHOUT ROWID;
CREATE INDEX message_ready ON message (queue, rank, number) WHERE state = 0;
CREATE INDEX message_acquired ON message (queue, expires) WHERE state = 1;
CREATE INDEX message_due ON message (queue, due) WHERE due IS NOT NULL;
CREATE INDEX message_key ON message (queue, key, state, rank, number) WHERE key IS NOT NULL;

CREATE TABLE queue_key (
    queue INTEGER NOT NULL,
    key NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE TABLE dead_message (
    queue INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    number INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    key,
    deliveries INTEGER NOT NULL,
    reason TEXT NOT NULL,
    died INTEGER NOT NULL,
    PRIMARY KEY (queue, partition, offset)
) WITHOUT ROWID;
"""
"""Work queues: state over the messages of a topic. Messages before `indexed` without a row are
finished; those from there on were not looked at yet."""


TAILS = """
CREATE TABLE tail (
    id INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL,
    bytes BLOB NOT NULL
);
"""
"""The last bytes of segments, until the files themselves are synced."""


OLDEST = 2
"""The oldest format that can be upgraded; earlier ones were never released."""

_STEPS: dict[int, str] = {
    # Format 2 to 3.
    2: """
        ALTER TABLE head ADD COLUMN synced INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE rollback (epoch INTEGER PRIMARY KEY, first INTEGER NOT NULL);
        ALTER TABLE topic ADD COLUMN uid INTEGER NOT NULL DEFAULT 0;
        UPDATE topic SET uid = random() & 9223372036854775807;
        ALTER TABLE member ADD COLUMN boot TEXT NOT NULL DEFAULT '';
        ALTER TABLE member ADD COLUMN beat INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE commits ADD COLUMN clock INTEGER;
    """,
    # Format 3 to 4.
    3: MARKS + QUEUES + TAILS,
}


def upgrade(db: apsw.Connection, version: int) -> None:
    """Upgrade the catalog from format `version` to the current one."""
    for step in range(version, OLDEST + len(_STEPS)):
        db.execute(_STEPS[step])
