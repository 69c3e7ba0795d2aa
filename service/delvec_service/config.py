"""Settings of the service, from arguments and the environment (``DELVEC_*``)."""

import base64
import fnmatch
import ipaddress
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from delvec_contract.events import EventType
from delvec_contract.tables import TABLE_NAME
from delvec_errors import BadRequest

__all__ = [
    "CatalogSettings",
    "Settings",
    "Webhook",
    "check_servable",
    "invalid_settings",
    "is_loopback",
    "is_sendable",
    "roots_in_environment",
]

MIB = 1024 * 1024
_SHORTEST_KEY, _LONGEST_KEY = 24, 64
_LONGEST_NAMESPACE = 100
_PROVIDER = r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/]|$))"
"""Keys fetched without encryption could be anybody's."""
_NO_PROVIDER = "must be an https:// URL (http:// only on localhost)"
_HINTS = {
    "oidc_issuer": _NO_PROVIDER,
    "oidc_jwks_url": _NO_PROVIDER,
    "credential_role_arn": "must be the ARN of a role: arn:aws:iam::123456789012:role/name",
}
"""What pydantic could only tell as a pattern or a length."""


_NAMESPACE_ROOTS = 'a JSON object, such as {"sales": ["s3://sales/lake"]}'
_CATALOGS = (
    'a JSON object, such as {"main": {"url": "https://uc.example.com", "token_file": "/run/secrets/uc"}}'
)


_WEBHOOKS = 'a JSON list, such as [{"name": "jobs", "url": "https://example.com/hook", "secret": "whsec_…"}]'


_IN_MEMORY = ("sqlite://", "sqlite:///:memory:")
_UNLIMITED: dict[str, Any] = {
    f"{of}_{what}": 0
    for of in ("principal", "table")
    for what in ("requests_per_second", "commits_per_second", "bytes_per_second", "plans_at_once")
}
"""The limits do not apply to an embedded service: it has no other users."""


def _default_database_url() -> SecretStr:
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".local" / "state"
    return SecretStr(f"sqlite:///{base / 'delvec' / 'service.db'}")


class CatalogSettings(BaseModel):
    """Another catalog.

    Attributes:
        url: the server's root.
        token: its bearer token.
        token_file: a file with the token, read for each request.
        catalog: its name at the server, if that is another than here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(min_length=1, max_length=1000)
    token: SecretStr | None = None
    token_file: str | None = Field(default=None, max_length=4096)
    catalog: str | None = Field(default=None, min_length=1, max_length=256)

    @field_validator("token")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else _checked_token(value)


class Webhook(BaseModel):
    """Where events are sent.

    Attributes:
        secret: one or several keys in Base64 after ``whsec_``, separated by spaces: each signs.
        types: the types of events; all if empty.
        tables: names, or patterns with ``*``; all tables if empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")
    url: str = Field(max_length=2000, pattern=r"^https?://[^\s/@]+(/\S*)?$")
    secret: SecretStr
    types: tuple[EventType, ...] = ()
    tables: tuple[str, ...] = ()

    @field_validator("secret")
    @classmethod
    def _keys(cls, value: SecretStr) -> SecretStr:
        try:
            keys = [
                base64.b64decode(one.removeprefix("whsec_"), validate=True)
                for one in value.get_secret_value().split()
            ]
        except ValueError:
            keys = []
        if not keys or not all(_SHORTEST_KEY <= len(key) <= _LONGEST_KEY for key in keys):
            raise ValueError("a secret must be whsec_ and 24 to 64 bytes in Base64")
        return value

    def wants(self, table: str) -> bool:
        """Whether it gets the events of a table of that name."""
        return not self.tables or any(fnmatch.fnmatchcase(table, pattern) for pattern in self.tables)


class Settings(BaseSettings):
    """All settings; each field is also ``DELVEC_<FIELD>`` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix="DELVEC_",
        env_ignore_empty=True,  # deployments set a variable to an empty value to leave it out
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,  # a mistyped token or password must not be logged
    )

    roots: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Where tables may be: paths or URLs, separated by commas, or a JSON list. Empty means anywhere, which "
            "`delvec serve` rejects."
        ),
    )
    namespace_roots: Annotated[dict[str, tuple[str, ...]], NoDecode] = Field(
        default_factory=dict,
        description=(
            'Roots of namespaces, as JSON: `{"sales": ["s3://sales/lake"]}`. Tables of these namespaces must be in '
            "their roots, and no other tables may be; new tables go into the first root."
        ),
    )
    warehouse: str | None = Field(
        default=None, description="Where tables created by name only go; by default the first root."
    )
    catalog_name: str = Field(
        default="delvec",
        pattern=r"^[A-Za-z_][A-Za-z0-9_\-]*$",
        max_length=128,
        description="The name of the catalog of managed tables, for clients of Unity Catalog.",
    )
    catalog_maintenance: Annotated[
        tuple[Literal["DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP"], ...], NoDecode
    ] = Field(
        default=(),
        description=(
            "What clients of the catalog may do to managed tables themselves: `DATA_REORGANIZATION` (OPTIMIZE), "
            "`DATA_CLEANUP` (VACUUM), `METADATA_CLEANUP` (the log), separated by commas. By default only Delvec does."
        ),
    )
    dropped_table_days: float = Field(
        default=7.0,
        ge=0,
        le=36_500,
        description="How long a dropped managed table can be brought back; then `delvec maintain` deletes its files.",
    )
    catalogs: Annotated[dict[str, CatalogSettings], NoDecode] = Field(
        default_factory=dict,
        description=(
            'Other catalogs whose managed tables are used from here, as JSON: `{"main": {"url": "https://…", '
            '"token_file": "/run/secrets/uc"}}`; or `"token"`. Names that begin with `main.` are then theirs. '
            '`"catalog"` is its name there, if different.'
        ),
    )
    database_url: SecretStr = Field(
        default_factory=_default_database_url,
        description="SQLite or PostgreSQL, as an SQLAlchemy URL; by default an SQLite file in the state directory.",
    )
    host: str = Field(
        default="127.0.0.1",
        description=("The address to listen on. Anything other than loopback requires tokens."),
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Other host names by which a service without tokens may be called, and hosts of pages that may call it, "
            "for example of a proxy. By default only localhost: any page that a browser on the machine shows could "
            "call the service otherwise."
        ),
    )
    port: int = Field(default=8710, ge=0, le=65535)
    workers: int = Field(
        default=1, ge=1, le=64, description="Number of processes that share the port and a database."
    )
    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        le=600,
        description=(
            "After SIGTERM, `/readyz` answers 503 for this long while other requests are served normally; then the "
            "process ends."
        ),
    )
    token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="A bearer token that allows everything; use it to create other tokens.",
    )
    authentication: Literal["auto", "required", "off"] = Field(
        default="auto",
        description=(
            "Whether requests need a token: `auto` requires one once a token has been configured or created or a "
            "role granted; `required` always; `off` never, which only works on loopback."
        ),
    )
    oidc_issuer: str | None = Field(
        default=None,
        pattern=_PROVIDER,
        max_length=1000,
        description="The identity provider whose tokens are accepted: their `iss`.",
    )
    oidc_audience: str | None = Field(
        default=None, min_length=1, max_length=1000, description="The required `aud` of its tokens."
    )
    oidc_jwks_url: str | None = Field(
        default=None,
        pattern=_PROVIDER,
        max_length=1000,
        description="URL of its keys; by default taken from its discovery document.",
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        max_length=200,
        description="The claim with groups or roles, with dots between levels: `realm_access.roles`.",
    )
    credential_role_arn: str | None = Field(
        default=None,
        min_length=20,
        max_length=2048,
        pattern=r"^arn:[!-~]+$",
        description=(
            "The role for credentials that engines get for tables on S3: AssumeRole, with a policy for the one "
            "table. Without it, no credentials are issued."
        ),
    )
    credential_seconds: int = Field(
        default=3600, ge=900, le=43_200, description="Lifetime of such credentials."
    )
    max_commit_bytes: int = Field(
        default=256 * MIB,
        ge=1024,
        description="The maximum size of JSON files in a log, for reading and writing.",
    )
    max_request_bytes: int = Field(
        default=256 * MIB, ge=1024, description="The maximum size of commits and of stream steps."
    )
    max_document_bytes: int = Field(
        default=MIB, ge=1024, description="The maximum size of all other requests."
    )
    max_queued_requests: int = Field(
        default=200,
        ge=0,
        description="How many requests of each kind may wait; more are answered with 503. 0: no limit.",
    )
    principal_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        description=(
            "Maximum requests per second of one principal to one process; more are answered with 429. 0: no limit."
        ),
    )
    principal_commits_per_second: float = Field(
        default=0.0, ge=0, le=1e6, description="The same for requests that create a version of a table."
    )
    principal_bytes_per_second: float = Field(
        default=0.0, ge=0, le=1e12, description="The same for the bytes of request bodies."
    )
    principal_plans_at_once: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="How many plans one principal may run concurrently in one process; 0: no limit.",
    )
    table_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        description="Maximum requests per second to one table, over all principals.",
    )
    table_commits_per_second: float = Field(
        default=0.0, ge=0, le=1e6, description="The same for requests that create a version of it."
    )
    table_bytes_per_second: float = Field(
        default=0.0, ge=0, le=1e12, description="The same for the bytes of request bodies."
    )
    table_plans_at_once: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description=("How many plans of one table may run concurrently in one process; 0: no limit."),
    )
    request_seconds: float = Field(
        default=100.0,
        ge=0,
        description="After this long a request is answered with 504, whatever it is waiting for; 0: never.",
    )
    maintenance_seconds: float = Field(
        default=3600.0, ge=0, description="The same for checks, checkpoints and VACUUM."
    )
    deletion_vector_target_bytes: int = Field(
        default=2 * MIB,
        ge=1024,
        lt=1536 * MIB,
        description="The approximate size of the files that deletion vectors of one commit share.",
    )
    snapshot_cache_bytes: int = Field(
        default=1024 * MIB, ge=0, description="Memory for snapshots of tables in use."
    )
    snapshot_store_bytes: int = Field(
        default=4096 * MIB,
        ge=0,
        description="Space in the database for snapshots, for all tables together; 0 stores none there.",
    )
    version_checksums: Literal["check", "warn", "ignore"] = Field(
        default="check",
        description=(
            "What to do if a version checksum (.crc) contradicts the log: reject the version, log a warning, or "
            "ignore it."
        ),
    )
    commit_attempts: int = Field(
        default=1000,
        ge=1,
        description="How many winning commits one commit may be rebased over before it gives up.",
    )
    transaction_seconds: float = Field(
        default=15.0,
        gt=0,
        description="How long a commit waits for a transaction over several tables that has reserved the next version, before "
        "it undoes that transaction.",
    )
    max_file_age_seconds: int = Field(
        default=3600,
        ge=1,
        description="The maximum age of a commit's new files, by the storage's clock.",
    )
    fault_points: str = Field(
        default="", description="For tests only: where commits fail or the process is killed."
    )
    idempotency_seconds: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="How long to keep answers under their Idempotency-Key. The log records commits for longer.",
    )
    log_maintenance: bool = Field(
        default=True,
        description="Write checksums and checkpoints after commits, and clean up logs, in the background.",
    )
    commit_watch_seconds: float = Field(
        default=30.0,
        ge=0,
        description=(
            "How long to check in the background whether a writer that does not create versions atomically has "
            "replaced a commit; 0 leaves that to the next request that notices it."
        ),
    )
    dml_max_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="How many bytes of data files a DELETE or UPDATE run by the service may read.",
    )
    dml_memory_bytes: int = Field(
        default=1024 * MIB,
        ge=64 * MIB,
        description="DuckDB's total memory for the commands that the service runs, of which each has an equal part.",
    )
    dml_at_once: int = Field(
        default=2, ge=0, description="How many commands the service may run concurrently; 0: none."
    )
    dashboard: bool = Field(default=True, description="Serve the dashboard at /.")
    metrics: bool = Field(default=True, description="Serve GET /metrics in Prometheus format.")
    metrics_tables: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Tables whose health is included in the metrics: names, or patterns with * for any characters, "
            "separated by commas, or a JSON list; at most 1000 tables. If empty, the metrics cover no individual "
            "tables."
        ),
    )
    iceberg_catalogs: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description=(
            "Iceberg catalogs from PyIceberg's configuration that conversions may write to: names, separated by "
            "commas, or a JSON list; * for all."
        ),
    )
    audit_days: int = Field(
        default=365,
        ge=0,
        le=36_500,
        description="How long the database keeps entries of the audit log; 0: they are only logged.",
    )
    event_days: float = Field(
        default=7.0,
        ge=0,
        le=36_500,
        description="How long the database keeps events of tables; 0: none are recorded.",
    )
    event_look_seconds: float = Field(
        default=600.0,
        ge=1,
        le=86_400,
        description=(
            "How often to list all logs, for events of commits by others and by processes that died before they "
            "recorded them."
        ),
    )
    webhooks: Annotated[tuple[Webhook, ...], NoDecode] = Field(
        default=(),
        description=(
            'Where events are sent, as JSON: `[{"name": "jobs", "url": "https://…", "secret": "whsec_…", '
            '"types": ["delvec.commit"], "tables": ["sales.*"]}]`.'
        ),
    )
    webhook_private_addresses: bool = Field(
        default=False, description="Whether webhooks may be at private addresses, and without encryption."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, then the environment: without a file, the sources for files would only cost 10 ms of a start."""
        return init_settings, env_settings

    @field_validator(
        "roots",
        "allowed_hosts",
        "catalog_maintenance",
        "metrics_tables",
        "iceberg_catalogs",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _listed(value) if isinstance(value, str) else value

    @field_validator("webhooks", mode="before")
    @classmethod
    def _of_json(cls, value: Any) -> Any:
        return _json(value, _WEBHOOKS) if isinstance(value, str) else value

    @field_validator("namespace_roots", mode="before")
    @classmethod
    def _by_namespace(cls, value: Any) -> Any:
        found = _json(value, _NAMESPACE_ROOTS) if isinstance(value, str) else value
        if not isinstance(found, dict):
            raise ValueError(f"must be {_NAMESPACE_ROOTS}")  # noqa: TRY004 - pydantic takes no TypeError
        return {name: (roots,) if isinstance(roots, str) else roots for name, roots in found.items()}

    @field_validator("token")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        """Drop the newline that files and Kubernetes secrets end in, as the client does."""
        return None if value is None else _checked_token(value)

    @field_validator("catalogs", mode="before")
    @classmethod
    def _by_catalog(cls, value: Any) -> Any:
        catalogs = _json(value, _CATALOGS) if isinstance(value, str) else value
        if not isinstance(catalogs, dict):
            raise ValueError(f"must be {_CATALOGS}")  # noqa: TRY004 - pydantic takes no TypeError
        for name in catalogs:
            if len(name) > _LONGEST_NAMESPACE or "." in name or not re.fullmatch(TABLE_NAME, name):
                raise ValueError(
                    f"{name[:_LONGEST_NAMESPACE]!r} cannot begin the names of tables; use one such as main"
                )
        return catalogs

    @field_validator("namespace_roots")
    @classmethod
    def _namespaces(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for namespace, roots in value.items():
            if len(namespace) > _LONGEST_NAMESPACE or not re.fullmatch(TABLE_NAME, namespace):
                raise ValueError(
                    f"{namespace[:_LONGEST_NAMESPACE]!r} is not a valid namespace; use a name such as sales or "
                    "sales.eu"
                )
            if not roots or not all(root.strip() for root in roots):
                raise ValueError(f"the namespace '{namespace}' has no root; give it one, or leave it out")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _provider(self) -> Self:
        if (self.oidc_issuer is None) != (self.oidc_audience is None):
            raise ValueError("DELVEC_OIDC_ISSUER and DELVEC_OIDC_AUDIENCE must be set together")
        return self

    @model_validator(mode="after")
    def _hooks(self) -> Self:
        names = [webhook.name for webhook in self.webhooks]
        if len(set(names)) < len(names):
            raise ValueError("DELVEC_WEBHOOKS: each webhook needs a name of its own")
        for webhook in self.webhooks:
            if not webhook.url.startswith("https://") and not self.webhook_private_addresses:
                raise ValueError(f"DELVEC_WEBHOOKS: the URL of '{webhook.name}' must begin with https://")
        return self

    @classmethod
    def embedded(
        cls,
        database_url: str,
        warehouse: str | None = None,
        roots: tuple[str, ...] = (),
        catalogs: Mapping[str, CatalogSettings] | None = None,
    ) -> Self:
        """Return the settings of a service embedded in its only client's process.

        Args:
            database_url: the URL of its database.
            warehouse: where tables created by name only go; None for ``DELVEC_WAREHOUSE``.
            roots: where tables may be; if empty, anywhere.
            catalogs: other catalogs; None for ``DELVEC_CATALOGS``.

        ``DELVEC_ROOTS`` does not say where tables may be, only which files logs may name. ``DELVEC_NAMESPACE_ROOTS``, ``DELVEC_TOKEN``, ``DELVEC_ICEBERG_CATALOGS``, metrics, the
        audit log, timeouts and queue limits concern a service that others can reach, so they do not apply.
        """
        overrides: dict[str, Any] = {} if warehouse is None else {"warehouse": warehouse}
        if catalogs is not None:
            overrides["catalogs"] = dict(catalogs)
        return cls(
            database_url=SecretStr(database_url),
            roots=roots,
            namespace_roots={},
            credential_role_arn=None,
            token=None,
            authentication="off",
            max_queued_requests=0,
            request_seconds=0,
            maintenance_seconds=0,
            metrics=False,
            dashboard=False,
            iceberg_catalogs=("*",),
            audit_days=0,
            event_days=0,
            webhooks=(),
            **_UNLIMITED,
            **overrides,
        )

    @classmethod
    def of_database(cls, database_url: str | None = None) -> Self:
        """Return the settings for administering a database; None for the one that ``delvec serve`` would use.

        Raises:
            BadRequest: a setting in the environment is wrong.
        """
        given: dict[str, Any] = {} if database_url is None else {"database_url": SecretStr(database_url)}
        try:
            return cls(
                token=None, authentication="off", log_maintenance=False, metrics=False, event_days=0, **given
            )
        except ValidationError as error:
            raise BadRequest(invalid_settings(error)[0]) from None


def is_sendable(token: str) -> bool:
    """Whether a token can be sent in a header."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def _checked_token(value: SecretStr) -> SecretStr:
    token = value.get_secret_value().strip()
    if not is_sendable(token):
        raise ValueError("must be printable ASCII without spaces: no client could send it in a header")
    return SecretStr(token)


def invalid_settings(error: ValidationError) -> list[str]:
    """Return what is wrong with the settings, one sentence for each, without their values."""
    problems = []
    for one in error.errors(include_url=False, include_input=False):
        field = str(one["loc"][0]) if one["loc"] else ""
        problem = one["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        if one["type"].startswith("string_"):
            problem = _HINTS.get(field, problem)
        elif field == "catalogs" and len(one["loc"]) > 1:
            problem = f"{'.'.join(map(str, one['loc'][1:]))} {problem}"
        elif one["type"] == "tuple_type" and field == "namespace_roots":
            problem = f"must be {_NAMESPACE_ROOTS}"
        problems.append(f"DELVEC_{field.upper()}: {problem}" if field else problem)
    return problems


def roots_in_environment() -> tuple[str, ...]:
    """Return ``DELVEC_ROOTS``.

    Raises:
        BadRequest: it is not a list.
    """
    try:
        return tuple(map(str, _listed(os.environ.get("DELVEC_ROOTS", ""))))
    except ValueError as error:
        raise BadRequest(f"DELVEC_ROOTS: {error}", setting="DELVEC_ROOTS") from None


def _listed(value: str) -> Any:
    if value.lstrip().startswith("["):
        return _json(value, 'a JSON list, such as ["/data", "/more"]; or separate values by commas')
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _json(value: str, expected: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be {expected} ({error})") from None


def check_servable(settings: Settings) -> None:
    """Reject settings that would expose more than intended.

    Raises:
        BadRequest: there are no roots, others could reach the service without a token, or workers would not share a
            database.
    """
    if not settings.roots:
        raise BadRequest(
            "A service that others can reach needs a list of allowed directories; set DELVEC_ROOTS or pass --roots, "
            "for example --roots /data,s3://bucket/tables."
        )
    if settings.workers > 1 and settings.database_url.get_secret_value() in _IN_MEMORY:
        raise BadRequest(
            f"{settings.workers} workers cannot share an in-memory database; set DELVEC_DATABASE_URL to a file or to "
            "PostgreSQL."
        )
    configured = settings.token is not None or settings.oidc_issuer is not None
    if settings.authentication == "off" and configured:
        raise BadRequest(
            "DELVEC_AUTHENTICATION=off contradicts DELVEC_TOKEN and DELVEC_OIDC_ISSUER; unset one of them."
        )
    asks = configured or settings.authentication == "required"
    if not asks and not is_loopback(settings.host):
        raise BadRequest(
            f"Without a token the service only listens on loopback, not on '{settings.host}'. Set DELVEC_TOKEN or "
            "DELVEC_OIDC_ISSUER, or set DELVEC_AUTHENTICATION=required if tokens were created (delvec token "
            "create)."
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
