"""Azurite, Microsoft's emulator of Azure Blob Storage."""

import base64
import email.utils
import hmac
import urllib.request

from tests.support.object_store_server import BUILD, ObjectStoreServer, program
from tests.support.s3_bucket import BUCKET

CONTAINER = BUCKET
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite has this account and key built in; they are in its documentation."""
_PACKAGE = "azurite@3"
_INSTALLED = BUILD / "azurite"


class AzuriteServer(ObjectStoreServer):
    """Azurite, installed once with npm, with an empty container.

    Attributes:
        settings: environment variables for clients.
    """

    def __init__(self):
        super().__init__()
        self.endpoint = f"{self.endpoint}/{_ACCOUNT}"
        self.settings = {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }

    def __enter__(self):
        super().__enter__()
        try:
            self._create_container()
        except BaseException:
            self.__exit__()
            raise
        return self

    def command(self):
        installer = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_INSTALLED), _PACKAGE]
        built = _INSTALLED / "node_modules" / ".bin" / "azurite-blob"
        where = [
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self.port),
            "--location",
            self.folder / "objects",
        ]
        # Clients request API versions newer than Azurite supports, without using their features.
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        return [program("azurite-blob", built, installer), *where, *options]

    def _create_container(self):
        """Send a REST request, since obstore cannot create containers and nothing else needs Azure's own client."""
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        path = f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
        signed = hmac.digest(base64.b64decode(_KEY), f"PUT{chr(10) * 12}{named}{path}".encode(), "sha256")
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}"
        url = f"{self.endpoint}/{CONTAINER}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers | {"Content-Length": "0"})
        urllib.request.urlopen(request, timeout=30).close()
