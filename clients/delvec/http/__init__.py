"""HTTP as the client speaks it, and the service embedded in the client's process."""
