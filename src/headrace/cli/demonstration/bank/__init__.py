"""The demo of a bank: commands, refusals, a compensated transfer, the past, a replay, what-if."""
