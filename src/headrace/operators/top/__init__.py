"""The top N of each window, ranked in the store."""
