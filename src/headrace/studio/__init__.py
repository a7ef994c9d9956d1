"""The studio: a local web app that shows streams live, and teaches them with simulations.

People would rather look than read. `live/` shows a log, its pipelines and their views while they
run. `learn/` draws simulations whose numbers come out of headrace's own log, oracle and sink. Pages
are HTML from the server; the browser runs three small scripts and nothing else.
"""
