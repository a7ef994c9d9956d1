"""An application as a person uses it: run, rebuild, drain, check, back up."""
