"""The reference designs: short pipelines to copy."""
