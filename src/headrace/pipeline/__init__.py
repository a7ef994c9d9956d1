"""Declarations of a user: applications, streams, tables, time. Nothing here runs or needs Spark."""
