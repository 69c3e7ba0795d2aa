"""Storage that loses an answer is asked again at once."""

import pytest


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("delvec_service.commits.commit_log._PUT_PAUSE_SECONDS", 0.0)
