"""Steps that write to topics on Kafka from the tasks that compute their rows."""
