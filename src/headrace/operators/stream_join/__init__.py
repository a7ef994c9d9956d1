"""Stream-stream join within a time bound, inner and outer."""
