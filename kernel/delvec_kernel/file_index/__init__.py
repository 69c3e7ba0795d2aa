"""The live files of a version, in immutable segments that versions, memory and database share."""
