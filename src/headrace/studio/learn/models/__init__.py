"""Reference models of mechanisms that headrace does not have, in plain Python."""
