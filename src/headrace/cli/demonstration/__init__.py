"""The demo: real processes on a real log, two of them killed, and an account of every event.

`plan` says what happens, `worker` is what the processes do, `processes` starts and kills them,
`run` tells the story, `screen` draws it, and `check` counts at the end.
"""
