"""Reference models in plain Python, for what other systems do and headrace has no part of."""
