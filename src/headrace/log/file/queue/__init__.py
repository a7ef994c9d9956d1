"""Work queues in the catalog: rows of unfinished messages, their leases and their keys."""
