"""What an event is: the columns it has and the types they hold.

A topic is declared once, and its events are then written by producers, stored as Arrow, and read
by Spark. This package is where those three agree. Everything here works without Spark, because a
producer should not need a Java machine to know that a row is wrong.
"""
