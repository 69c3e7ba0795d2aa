"""The change data feed and streams, whatever the engine."""
