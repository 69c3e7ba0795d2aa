"""The change data feed and streams of appended rows, as far as the log defines them."""
