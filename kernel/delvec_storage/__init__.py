"""Files on local disk and in object stores."""
