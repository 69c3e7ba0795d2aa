"""Table features: which ones Delvec supports, and the protocol versions that they need."""
