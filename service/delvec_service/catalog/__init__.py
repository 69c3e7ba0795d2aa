"""Delvec as a catalog of Delta tables: the Unity Catalog Delta API, over the names and commits of the service."""
