"""How it runs: streams compiled to Spark's operators, the log as a source, and recovery."""
