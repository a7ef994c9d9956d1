"""Every claim of speed is a command here: `headrace bench NAME`.

A bench measures headrace and a baseline in the same run and reports their ratio, since times on a
shared machine are noise. Both take turns for some rounds, and the best round of each counts.
"""
