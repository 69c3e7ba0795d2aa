"""moto as an S3 server with STS, in this process: requests are recorded, and can be answered otherwise."""

import re
import threading
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

from moto.server import DomainDispatcherApplication, create_backend_app
from tests.support.s3_bucket import BUCKET
from werkzeug.serving import make_server


@dataclass(frozen=True)
class S3Request:
    """A request received by the S3 server.

    Attributes:
        kind: GET, HEAD, PUT, LIST and so on.
        key: the object's key, or the listed prefix; URL-decoded.
        range: the Range header, or an empty string.
        access_key: the key that signed it, or an empty string.
    """

    kind: str
    key: str
    range: str
    access_key: str = ""


class S3Server:
    """moto's S3 over HTTP, which records every request.

    Attributes:
        fault: maps a request to the status, headers and body to answer with, or None.
    """

    def __init__(self):
        self.requests = []
        self.fault = None
        self._creating = threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ, start_response):
        query = parse_qs(environ.get("QUERY_STRING", ""))
        listing = "list-type" in query
        kind = "LIST" if listing else environ["REQUEST_METHOD"]
        path = unquote(environ["PATH_INFO"].encode("latin-1").decode()).removeprefix(f"/{BUCKET}").lstrip("/")
        key = query.get("prefix", [""])[0] if listing else path
        signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        access_key = "" if signed is None else signed[1]
        request = S3Request(kind, key, environ.get("HTTP_RANGE", ""), access_key)
        self.requests.append(request)
        if self.fault is not None and (answer := self.fault(request)) is not None:
            status, headers, body = answer
            start_response(status, headers)
            return [body]
        if environ["REQUEST_METHOD"] != "PUT":
            return self._app(environ, start_response)
        with self._creating:  # moto checks and then writes, which is not atomic
            return self._app(environ, start_response)

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
