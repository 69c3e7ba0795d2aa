"""CLONE and CONVERT: tables that are made of files which are there."""
