"""The fraud demo: card transactions, some of them by thieves, and what gets through.

`traffic` simulates the cards and their fraud, `play` runs the pipeline, `screen` draws it,
`recount` finds independently what rules have to flag, `account` compares, and `stage` puts it all
together.
"""
