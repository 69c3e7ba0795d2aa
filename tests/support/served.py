"""A service in a thread of the test process, on a free port."""

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

from delvec_service.api.connections import BoundedProtocol
from delvec_service.app import create_app
from delvec_service.config import Settings


@contextmanager
def served(folder, token, **settings):
    """Serve the tables below a folder to clients with the token; yields the URL."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}",
        roots=[str(folder)],
        warehouse=str(folder),
        token=token,
        **settings,
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            create_app(settings, listens=True),
            log_config=None,
            access_log=False,
            http=BoundedProtocol,
            ws="none",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)
