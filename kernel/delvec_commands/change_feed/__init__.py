"""The change data feed and streams, for every engine."""
