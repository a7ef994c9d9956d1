"""A broker's topics copied into an embedded log, for what needs more than a broker can tell.

Joins, lookups as of a time, duplicates and state of the user's own go by commits that order the
whole log, which Kafka does not have. A landing gives each batch that was read a place in such an
order, once, so that from there on everything is as on the embedded log: the same operators, the
same laws, the same answer at every replay.
"""
