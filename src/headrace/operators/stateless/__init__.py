"""Stateless steps: filter, select, derive, explode, merge.

They exist so that most pipelines need no state at all. Each row is handled by itself and published
once, as it arrives. They can read Kafka directly and run in real time.
"""
