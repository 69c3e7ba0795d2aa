"""The change data feed and streams of appended rows, as defined by the log."""
