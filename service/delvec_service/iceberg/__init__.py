"""Iceberg metadata of Delta tables: conversion, and the files that it writes."""
