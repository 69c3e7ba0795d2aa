"""Runs commands in the middle of another: of a commit, or of a VACUUM."""

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import delvec_service.vacuum.vacuum as vacuuming
from delvec_service.commits import fault_points


@contextmanager
def in_between(running, table, *actions, point="before_put"):
    """Run ``actions`` with another service at the first passages of a fault point; yields their results."""
    waiting, answers = list(actions), []
    with running() as other:
        assert other.post("/v1/tables", json={"location": str(table.folder)}).status_code in (200, 201)

        def act():
            if waiting:
                action = waiting.pop(0)
                # On a separate thread, like another process; it passes the fault points, too.
                theirs = replace(table, client=other)
                with ThreadPoolExecutor(1) as pool:
                    answers.append(pool.submit(action, theirs).result())

        with fault_points.armed(**{point: act}):
            yield answers
    assert waiting == []
    assert [answer.status_code for answer in answers] == [200] * len(answers), answers


@contextmanager
def during_deletes(monkeypatch, command, *, seconds):
    """Start ``command`` on another thread when VACUUM is about to delete files, and give it some seconds; yields its future in a list."""
    delete, started = vacuuming.delete_files, []
    with ThreadPoolExecutor(1) as pool:

        def late(*arguments, **options):
            started.append(pool.submit(command))
            wait(started, seconds)
            return delete(*arguments, **options)

        monkeypatch.setattr(vacuuming, "delete_files", late)
        yield started
