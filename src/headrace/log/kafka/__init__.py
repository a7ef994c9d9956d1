"""The log on a Kafka broker: `kafka://host:port`.

What Kafka does not keep of a topic or of a producer is in two compacted topics, `_headrace.topics`
and `_headrace.fences`. `headrace.log.kafka.log` is the place to begin; it needs the extra `kafka`.
"""
