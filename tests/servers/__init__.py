"""Servers that tests start: PostgreSQL, MariaDB and Redis, from Debian's packages, without root.

`make services` brings the programs that the machine lacks (`packages.py`). `server.py` starts a
program, kills it and starts it again, and one module per server knows its settings. Tests that only
use a server share one (`sharing.py`), with a database for each test; tests that break it start
their own. `guard.py` removes a server whose test run has died.

A new server is an entry of `packages.PROGRAMS`, a subclass of `Server`, and two fixtures.
"""
