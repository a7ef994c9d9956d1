"""How rows become a Spark plan: source, row metadata, lateness, and the accounting of every row."""
