"""Steps that change rows one by one and keep nothing: filter, select, derive, explode, merge."""
