import pytest

from delvec.cli import main


@pytest.fixture
def run(capsys):
    """Run a command that must succeed; return what it printed, and its errors."""

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == 0
        return capsys.readouterr()

    return command
