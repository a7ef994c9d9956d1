"""Full-text search of views: a store in SQLite's FTS5, and queries in words.

Rows, the index and the position are one transaction, in a file of each view. Ranking is BM25.
"""

from headrace.store.search.declare import Search
from headrace.store.search.searching import Found, Hit, SearchIndex, open_search

__all__ = ["Found", "Hit", "Search", "SearchIndex", "open_search"]
