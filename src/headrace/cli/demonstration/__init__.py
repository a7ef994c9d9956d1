"""The demo: count live page views by event time, and verify the counts with a recount.

`generator` writes page views, `play` runs the pipeline on them, `screen` draws it, `recount` counts
again in another way, `check` compares, and `stage` puts it all together.
"""
