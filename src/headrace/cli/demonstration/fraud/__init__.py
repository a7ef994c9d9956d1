"""The demo of fraud: cards in use, some of them stolen, and what is let through until it is seen.

`traffic` makes up the cards, their use and what is fraud in it, `play` runs the pipeline, `screen`
draws it, `recount` finds in another way what rules have to flag, `account` compares, and `stage`
is where it all comes together.
"""
