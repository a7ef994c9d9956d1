"""The top N as a Spark plan: that of its aggregation. The store ranks."""

from headrace.operators.window.spark import WindowPlan

plan = WindowPlan
