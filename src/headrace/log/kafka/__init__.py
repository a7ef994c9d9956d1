"""The log on a Kafka broker: `kafka://host:port`.

Two compacted topics, `_headrace.topics` and `_headrace.fences`, hold what Kafka cannot store.
Start at `headrace.log.kafka.log`; it needs the extra `kafka`.
"""
