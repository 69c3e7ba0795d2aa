"""The bodies of HTTP requests and answers, by their names."""

import pkgutil
from importlib import import_module

import delvec_contract

SHAPES = {
    name: value
    for each in pkgutil.iter_modules(delvec_contract.__path__)
    for name, value in vars(import_module(f"delvec_contract.{each.name}")).items()
    if isinstance(value, type) and value.__module__ == f"delvec_contract.{each.name}"
}
