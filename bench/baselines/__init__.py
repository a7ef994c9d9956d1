"""The baselines of the benchmarks: hand-written code without headrace."""
