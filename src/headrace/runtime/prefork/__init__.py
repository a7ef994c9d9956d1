"""Python processes for Spark, forked from one that has loaded all modules."""
