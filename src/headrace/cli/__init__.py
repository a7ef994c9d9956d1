"""The `headrace` command: one file per command or group of commands.

The work is done by the other packages. This one adds the command line, the output on a terminal,
and the error messages.
"""
