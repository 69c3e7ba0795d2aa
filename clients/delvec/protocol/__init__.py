"""The Delta protocol as client and service share it: pure values, no input or output."""
