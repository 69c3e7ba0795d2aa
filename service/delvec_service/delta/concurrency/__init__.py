"""What the conflict check knows, and the rules that it is made of."""
