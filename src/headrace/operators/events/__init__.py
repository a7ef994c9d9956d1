"""Events of a domain as rows with typed columns, in the current versions of their types.

It exists so that a read model is an ordinary pipeline. Upcasters run as Spark's own columns. An
event that cannot be read is a dead letter with its reason, so a read model never skips one.
"""
