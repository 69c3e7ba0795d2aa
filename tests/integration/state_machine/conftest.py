"""Retries of storage requests do not pause."""

import pytest


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("delvec_service.commits.commit_log._PUT_PAUSE_SECONDS", 0.0)
