import subprocess
import sys

import pytest

import delvec
import delvec_errors as errors


def test_exported_names_exist_once():
    assert len(set(delvec.__all__)) == len(delvec.__all__)
    for name in delvec.__all__:
        assert getattr(delvec, name) is not None


def test_every_error_is_exported():
    defined = {error.__name__ for error in errors.error_classes()}
    assert defined <= set(delvec.__all__)
    assert all(issubclass(getattr(delvec, name), delvec.DelvecError) for name in defined)


def test_completion_offers_the_exported_names():
    assert set(delvec.__all__) <= set(dir(delvec))


def test_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="conect"):
        delvec.conect  # noqa: B018


def test_importing_the_package_alone_is_light():
    program = (
        "import sys, delvec, delvec_errors;"
        "print(sorted({'httpx', 'pyarrow', 'sqlglot', 'duckdb', 'delvec_service'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
