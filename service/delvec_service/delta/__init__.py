"""The Delta protocol: pure values and functions, no input or output."""
