"""Delvec as a client of other catalogs: the Unity Catalog Delta API, and the tables whose commits those catalogs decide on."""
