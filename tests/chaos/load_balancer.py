"""A client-side load balancer for replicas that come and go."""

import time

import httpx


class LoadBalancer(httpx.BaseTransport):
    """Sends requests in turn to the replicas that were ready at their last check, like a Kubernetes Service.

    Args:
        ports: returns the ports of all replicas.
        seconds: how long an answer from ``/readyz`` is valid.
    """

    def __init__(self, ports, seconds=0.0):
        self._ports = ports
        self._seconds = seconds
        self._asked_at = float("-inf")
        self._ready = []
        self._turn = 0
        self._network = httpx.HTTPTransport()

    def handle_request(self, request):
        if time.monotonic() - self._asked_at >= self._seconds:
            ports = self._ports()
            self._ready = [port for port in ports if _is_ready(port)] or ports
            self._asked_at = time.monotonic()
        self._turn += 1
        request.url = request.url.copy_with(port=self._ready[self._turn % len(self._ready)])
        return self._network.handle_request(request)

    def close(self):
        self._network.close()


def _is_ready(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).is_success
    except httpx.HTTPError:
        return False
