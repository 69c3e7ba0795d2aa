import pytest
from pydantic import ValidationError

from delvec_errors import BadRequest, InvalidLocation, LocationNotAllowed
from delvec_service.config import Settings, check_servable, invalid_settings
from delvec_storage.roots import Roots


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DELVEC_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("text", "roots"),
    [
        ("/data", ("/data",)),
        ("/data, s3://bucket/lake ,", ("/data", "s3://bucket/lake")),
        ('["/a,b", "/c"]', ("/a,b", "/c")),
        ("", ()),
    ],
)
def test_roots_come_from_the_environment(monkeypatch, text, roots):
    monkeypatch.setenv("DELVEC_ROOTS", text)

    assert Settings().roots == roots


def test_a_variable_set_to_nothing_is_not_set(monkeypatch):
    for name in ("TOKEN", "PORT", "ROOTS", "DATABASE_URL"):
        monkeypatch.setenv(f"DELVEC_{name}", "")

    settings = Settings()

    assert (settings.token, settings.port, settings.roots) == (None, 8710, ())


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DELVEC_PORT", "1234")
    monkeypatch.setenv("DELVEC_TOKEN", "secret-token")
    monkeypatch.setenv("DELVEC_DATABASE_URL", "postgresql://ann:hunter2@host/db")
    monkeypatch.setenv("DELVEC_LOG_LEVEL", "WARNING")

    settings = Settings()

    assert (settings.port, settings.log_level) == (1234, "warning")
    assert settings.token.get_secret_value() == "secret-token"
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "secret-token" not in text
        assert "hunter2" not in text


def test_a_bad_setting_is_named_and_not_shown():
    with pytest.raises(ValidationError) as caught:
        Settings(port=99_999_999, token="")

    assert "port" in str(caught.value)
    assert "99999999" not in str(caught.value)


def test_the_default_database_is_in_the_state_directory(tmp_path):
    url = Settings().database_url.get_secret_value()

    assert url == f"sqlite:///{tmp_path}/state/delvec/service.db"


def test_an_embedded_service_has_neither_roots_nor_token(monkeypatch):
    monkeypatch.setenv("DELVEC_ROOTS", "/data")
    monkeypatch.setenv("DELVEC_TOKEN", "secret-token")

    settings = Settings.embedded("sqlite://")

    assert settings.roots == ()
    assert settings.token is None


def test_serving_needs_roots():
    with pytest.raises(BadRequest, match="DELVEC_ROOTS"):
        check_servable(Settings())
    check_servable(Settings(roots=("/data",)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_strangers_need_a_token(host):
    with pytest.raises(BadRequest, match="DELVEC_TOKEN"):
        check_servable(Settings(roots=("/data",), host=host))
    check_servable(Settings(roots=("/data",), host=host, token="secret"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(host):
    check_servable(Settings(roots=("/data",), host=host))


def test_without_roots_everything_is_allowed(tmp_path):
    assert Roots().allows("s3://anywhere/x")
    assert Roots().canonical(str(tmp_path)) == f"file://{tmp_path}"


def test_relative_roots_start_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    roots = Roots(["data"])

    assert roots.first == f"file://{tmp_path}/data"
    assert roots.canonical(f"{tmp_path}/data/people") == f"file://{tmp_path}/data/people"
    with pytest.raises(LocationNotAllowed):
        roots.canonical(f"{tmp_path}/database")
    with pytest.raises(InvalidLocation):
        roots.canonical("data/people")


def test_a_location_has_a_longest_length():
    with pytest.raises(InvalidLocation, match="2000"):
        Roots().canonical("/" + "x" * 2001)


def test_a_bad_value_of_a_setting_names_its_variable(monkeypatch):
    monkeypatch.setenv("DELVEC_LOG_MAINTENANCE", "perhaps")
    with pytest.raises(ValidationError) as caught:
        Settings()

    (line,) = invalid_settings(caught.value)
    assert line.startswith("DELVEC_LOG_MAINTENANCE: ")


def test_other_catalogs_come_from_the_environment_and_their_tokens_are_not_shown(monkeypatch):
    monkeypatch.setenv("DELVEC_CATALOGS", '{"main": {"url": "https://uc", "token": "a-secret\\n"}}')

    settings = Settings()

    assert settings.catalogs["main"].url == "https://uc"
    assert settings.catalogs["main"].token.get_secret_value() == "a-secret"
    assert "a-secret" not in repr(settings)


@pytest.mark.parametrize(
    "text",
    [
        "main",
        "[]",
        '{"a.b": {"url": "https://uc"}}',
        '{"main": {"token": "a-secret"}}',
        '{"main": {"url": "https://uc", "token": "a-secret in parts"}}',
        '{"main": {"url": "https://uc", "tokn": "a-secret"}}',
    ],
)
def test_a_wrong_catalog_is_named_without_its_token(monkeypatch, text):
    monkeypatch.setenv("DELVEC_CATALOGS", text)

    with pytest.raises(ValidationError) as caught:
        Settings()

    [problem] = invalid_settings(caught.value)
    assert problem.startswith("DELVEC_CATALOGS: ")
    assert "a-secret" not in f"{problem} {caught.value}"
