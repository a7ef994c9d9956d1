"""The use cases of an application: run, rebuild, drain, check, back up."""
