"""Simulations: each is a pure function of a seed, settings and a step, and one renderer draws it.

A frame is plain data that comes out of headrace's own log, oracle and sink on a virtual clock. So
an address restores a simulation, stepping back costs nothing, and a test reads what a page shows.
"""
