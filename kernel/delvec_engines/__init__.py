"""The engines that read and write data files."""
