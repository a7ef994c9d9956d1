"""What headrace is measured against, written by hand and without headrace."""
