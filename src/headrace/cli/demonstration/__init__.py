"""The demo: page views as they come, counted by event time, and a recount that has to agree.

`generator` writes page views, `play` runs the pipeline on them, `screen` draws it, `recount` counts
again in another way, `check` compares, and `stage` is where it all comes together.
"""
