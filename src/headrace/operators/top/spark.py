"""The Spark plan of the top N, which is that of its aggregation. The store ranks."""

from headrace.operators.window.spark import WindowPlan

plan = WindowPlan
