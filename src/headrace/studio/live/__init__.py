"""Live pages: a log, its groups, pipelines and views, as they are now and as they were."""
