"""The bodies of HTTP requests and responses.

Envelope fields are kebab-case; Delta actions, descriptors and metrics keep Delta's spelling.
The service converts these to its domain classes.

Tested in `tests/integration/service/test_openapi_conformance.py`.
"""
