"""The `headrace` command: one file per command or group of commands.

Everything here is made of what `headrace.log` and its like already do; what this package adds is
how it is asked for in a shell, how it looks in a terminal, and what it says when it fails.
"""
