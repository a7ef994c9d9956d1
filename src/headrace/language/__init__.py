"""Operators in words: SQL, explanations, and differences between declarations."""
