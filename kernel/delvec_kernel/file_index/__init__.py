"""The live files of a version, in immutable segments shared by versions, memory and the database."""
