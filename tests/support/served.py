"""A service in a thread of the test process, on a free port."""

from delvec.http import embedded


def served(folder, token, **settings):
    """Serve the tables below a folder to clients with the token; yields the URL."""
    return embedded.served(
        database_url=f"sqlite:///{folder / 'store.db'}",
        roots=[str(folder)],
        warehouse=str(folder),
        token=token,
        **settings,
    )
