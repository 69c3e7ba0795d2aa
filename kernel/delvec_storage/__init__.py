"""Files on local disk and in object stores: the kernel's one package with I/O."""
