"""Topics of a broker copied into an embedded log, for steps that need commits.

Joins, lookups as of a time, deduplication and Python state need commits that order the whole log,
which Kafka does not have. A landing gives each batch that it reads a place in such an order, once.
From there on everything works as on the embedded log: the same operators, the same laws, the same
answer in every replay.
"""
