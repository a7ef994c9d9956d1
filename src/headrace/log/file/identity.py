"""Idempotent commits: producer ids, epochs and sequence numbers, and receipts of retries."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from headrace.log.committer import fenced, out_of_order
from headrace.log.file.catalog import many, one
from headrace.log.state import Ack, Receipt


@dataclass(frozen=True)
class Identity:
    """A producer and the sequence number of one of its commits.

    The epoch counts the starts of a producer with a given id; that of anonymous ones is 0.
    """

    producer: str
    epoch: int
    sequence: int


def earlier_receipt(db: apsw.Connection, identity: Identity) -> Receipt | None:
    """The receipt of this commit, if it was made before."""
    known = one(db, "SELECT epoch, sequence FROM producer WHERE id = ?", identity.producer)
    if known is None and identity.epoch == 0:
        return None  # an anonymous producer, new or forgotten
    epoch, sequence = known or (identity.epoch, -1)
    if epoch > identity.epoch:
        raise fenced(identity.producer)
    if identity.sequence > sequence + 1:
        raise out_of_order(identity.producer, identity.sequence, sequence + 1)
    if identity.sequence == sequence + 1:
        return None
    sql = "SELECT number, time FROM commits WHERE producer = ? AND sequence = ?"
    made = one(db, sql, identity.producer, identity.sequence)
    if made is None:  # retention has removed it
        return Receipt(None, 0, (), duplicate=True)
    acks = tuple(
        Ack(*row)
        for row in many(
            db,
            "SELECT t.name, c.partition, c.first, c.end FROM topic_commit k "
            "JOIN topic t ON t.id = k.topic JOIN partition p ON p.topic = k.topic "
            "JOIN chunk c ON c.topic = k.topic AND c.partition = p.partition "
            "AND c.number = k.number WHERE k.number = ? ORDER BY t.name, c.partition",
            made[0],
        )
    )
    return Receipt(made[0], made[1], acks, duplicate=True)
