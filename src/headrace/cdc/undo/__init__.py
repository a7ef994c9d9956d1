"""SQL that takes back captured changes, for a person to read and to run.

`changes.py` reads the changes of a range and puts them in the order of their transactions,
`script.py` writes their inverse, the last change first, and `dialects.py` knows how each database
quotes names and values. Nothing here connects to a database.
"""
