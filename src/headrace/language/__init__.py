"""What speaks about operators: SQL, explanations, definitions and their differences."""
