"""Process managers: events become new commands, exactly once.

A process reads a domain's events and decides what to do about them: send a notice, or give the
money back when the second half of a transfer was refused. Its position, its states and the
commands that it issues are one commit. The commands are handled afterwards, under ids that follow
from that commit, so that one that is sent again has one effect.
"""
