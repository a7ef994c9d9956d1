"""Alerts: rules over the recent events of each key, evaluated for every event.

It exists for decisions that cannot wait for a window to close, such as card fraud. Each event is
evaluated on arrival, and again whenever an event of its recent past arrives late. Evaluations
follow the commits of the log, so a replay gives the same alerts, each once; none is taken back. The
same declaration runs in micro-batches and in real time. Events are held in overlapping panes of
Spark's state, and a new event sorts its pane: a key with thousands of events is slow.
"""
