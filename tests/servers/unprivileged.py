"""Runs a command as another user: `python unprivileged.py UID GID COMMAND...`."""

import os
import sys

_, uid, gid, *command = sys.argv
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(command[0], command)
