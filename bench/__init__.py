"""Benchmarks: every claim of speed is a command, `headrace bench NAME`.

A benchmark measures headrace and a baseline in the same run and reports their ratio, since absolute
times on a shared machine are noise. The two take turns, and the best round of each counts.
"""
