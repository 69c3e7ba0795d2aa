"""Settings of the service, from arguments and the environment (``DELVEC_*``)."""

import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from delvec_kernel.errors import BadRequest
from delvec_kernel.wire.tables import TABLE_NAME

__all__ = ["Settings", "check_servable"]

MIB = 1024 * 1024
_LONGEST_NAMESPACE = 100
_PROVIDER = r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/]|$))"
"""Keys that come unencrypted from elsewhere could be anybody's."""


_UNLIMITED: dict[str, Any] = {
    f"{of}_{what}": 0
    for of in ("principal", "table")
    for what in ("requests_per_second", "commits_per_second", "bytes_per_second", "plans_at_once")
}
"""Whoever has a service in a process of their own shares it with nobody."""


def _default_database_url() -> SecretStr:
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".local" / "state"
    return SecretStr(f"sqlite:///{base / 'delvec' / 'service.db'}")


class Settings(BaseSettings):
    """Everything that can be set; each field is also ``DELVEC_<FIELD>`` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix="DELVEC_",
        env_ignore_empty=True,  # deployments set a variable to nothing to leave it out
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # a mistyped token or password must not end up in a log
    )

    roots: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Where tables may lie: paths or URLs, separated by commas, or a JSON list. "
        "Empty means everywhere, which `delvec serve` refuses.",
    )
    namespace_roots: Annotated[dict[str, tuple[str, ...]], NoDecode] = Field(
        default_factory=dict,
        description='Roots of namespaces, as JSON: `{"sales": ["s3://sales/lake"]}`. Tables of such a namespace lie in its roots and '
        "nowhere else, new ones in the first, and no other table lies there.",
    )
    warehouse: str | None = Field(
        default=None, description="Where tables that are created by name alone go; by default the first root."
    )
    database_url: SecretStr = Field(
        default_factory=_default_database_url,
        description="SQLite or PostgreSQL, as an SQLAlchemy URL; by default an SQLite file in the state directory.",
    )
    host: str = Field(default="127.0.0.1", description="Other than loopback only with a token.")
    port: int = Field(default=8710, ge=0, le=65535)
    workers: int = Field(
        default=1, ge=1, le=64, description="Processes that serve the port, with one database in common."
    )
    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        le=600,
        description="After SIGTERM `/readyz` answers 503 for so long, and everything else as before; then the process ends.",
    )
    token: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="A bearer token of the configuration, whose owner may everything; other tokens are made with it.",
    )
    authentication: Literal["auto", "required", "off"] = Field(
        default="auto",
        description="Whether requests need a token: `auto` asks for one once one is configured, made or granted something; "
        "`required` asks always; `off` never, on loopback only.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        pattern=_PROVIDER,
        max_length=1000,
        description="The identity provider whose tokens are let in: the `iss` that they have.",
    )
    oidc_audience: str | None = Field(
        default=None, min_length=1, max_length=1000, description="The `aud` that they must have."
    )
    oidc_jwks_url: str | None = Field(
        default=None,
        pattern=_PROVIDER,
        max_length=1000,
        description="Where its keys are; by default where its discovery document says.",
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        max_length=200,
        description="What tokens call groups or roles, with dots between levels: `realm_access.roles`.",
    )
    credential_role_arn: str | None = Field(
        default=None,
        min_length=20,
        max_length=2048,
        pattern=r"^arn:[!-~]+$",
        description="The role that engines' credentials for tables on S3 are of: AssumeRole, with a policy for the one table. "
        "Without it none are handed out.",
    )
    credential_seconds: int = Field(
        default=3600, ge=900, le=43_200, description="How long such credentials last."
    )
    max_commit_bytes: int = Field(
        default=256 * MIB,
        ge=1024,
        description="JSON files of a log that are larger are neither read nor written.",
    )
    max_request_bytes: int = Field(
        default=256 * MIB, ge=1024, description="Of commits and of steps of a stream."
    )
    max_document_bytes: int = Field(default=MIB, ge=1024, description="Of all other requests.")
    max_queued_requests: int = Field(
        default=200,
        ge=0,
        description="How many requests of a kind wait for their turn; more are answered with 503. 0: no limit.",
    )
    principal_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        description="Requests of one principal to one process; more are answered with 429. 0: no limit.",
    )
    principal_commits_per_second: float = Field(
        default=0.0, ge=0, le=1e6, description="The same for requests that make a version of a table."
    )
    principal_bytes_per_second: float = Field(
        default=0.0, ge=0, le=1e12, description="The same for the bytes of request bodies."
    )
    principal_plans_at_once: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="How many plans of one principal run in one process; 0: no limit.",
    )
    table_requests_per_second: float = Field(
        default=0.0, ge=0, le=1e6, description="Requests to one table, by all principals together."
    )
    table_commits_per_second: float = Field(
        default=0.0, ge=0, le=1e6, description="The same for requests that make a version of it."
    )
    table_bytes_per_second: float = Field(
        default=0.0, ge=0, le=1e12, description="The same for the bytes of request bodies."
    )
    table_plans_at_once: int = Field(
        default=0, ge=0, le=10_000, description="How many plans of one table run in one process; 0: no limit."
    )
    request_seconds: float = Field(
        default=100.0,
        ge=0,
        description="After so long a request is answered with 504, whatever it waits for; 0: never.",
    )
    maintenance_seconds: float = Field(
        default=3600.0, ge=0, description="The same for checks, checkpoints and VACUUM."
    )
    deletion_vector_target_bytes: int = Field(
        default=2 * MIB,
        ge=1024,
        lt=1536 * MIB,
        description="Deletion vectors of one commit share files of about this size.",
    )
    snapshot_cache_bytes: int = Field(
        default=1024 * MIB, ge=0, description="Memory for snapshots of tables in use."
    )
    snapshot_store_bytes: int = Field(
        default=4096 * MIB,
        ge=0,
        description="Space in the database for snapshots, of all tables together; 0 keeps none there.",
    )
    version_checksums: Literal["check", "warn", "ignore"] = Field(
        default="check",
        description="What to do about a version checksum (.crc) that contradicts the log: refuse the version, "
        "log a warning, or not look.",
    )
    commit_attempts: int = Field(
        default=1000, ge=1, description="How many winners one commit may pass before it gives up."
    )
    max_file_age_seconds: int = Field(
        default=3600,
        ge=1,
        description="How long ago, by the storage's clock, a commit's new files may have been written at most.",
    )
    fault_points: str = Field(
        default="", description="For tests only: where commits fail or the process is killed."
    )
    idempotency_seconds: float = Field(
        default=24 * 3600.0,
        gt=0,
        description="How long answers are kept under their Idempotency-Key. What a commit did is found in the log "
        "for longer.",
    )
    log_upkeep: bool = Field(
        default=True,
        description="Write checksums and checkpoints after commits, and clean up logs, in the background.",
    )
    commit_watch_seconds: float = Field(
        default=30.0,
        ge=0,
        description="How long to look, in the background, whether a writer that does not create versions atomically "
        "has replaced a commit; 0 leaves that to the next request that meets it.",
    )
    dml_max_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="How many bytes of data files a DELETE or UPDATE may read that the service runs itself.",
    )
    dml_memory_bytes: int = Field(
        default=1024 * MIB,
        ge=64 * MIB,
        description="Memory of DuckDB for the commands that the service runs itself, all together.",
    )
    dml_at_once: int = Field(
        default=2, ge=0, description="How many commands the service runs itself at the same time; 0: none."
    )
    dashboard: bool = Field(default=True, description="Answer GET / with the page for people.")
    metrics: bool = Field(default=True, description="Answer GET /metrics, in the format of Prometheus.")
    metrics_tables: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Tables whose health is among the metrics: names, or patterns with * for any characters, separated by "
        "commas, or a JSON list; at most 1000 tables. Without any, metrics tell of no single table.",
    )
    iceberg_catalogs: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Iceberg catalogs of PyIceberg's configuration that conversions may write to: names, separated by commas, or a "
        "JSON list; * for all.",
    )
    audit_days: int = Field(
        default=365,
        ge=0,
        le=36_500,
        description="How long the audit log's entries stay in the database; 0: they are in the log alone.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("roots", "metrics_tables", "iceberg_catalogs", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("namespace_roots", mode="before")
    @classmethod
    def _by_namespace(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @field_validator("namespace_roots")
    @classmethod
    def _namespaces(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for namespace, roots in value.items():
            if len(namespace) > _LONGEST_NAMESPACE or not re.fullmatch(TABLE_NAME, namespace):
                raise ValueError(
                    f"{namespace[:_LONGEST_NAMESPACE]!r} is no namespace, as sales or sales.eu are"
                )
            if not roots or not all(root.strip() for root in roots):
                raise ValueError(f"the namespace '{namespace}' has no root: give it one, or leave it out")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _provider(self) -> Self:
        if (self.oidc_issuer is None) != (self.oidc_audience is None):
            raise ValueError(
                "DELVEC_OIDC_ISSUER and DELVEC_OIDC_AUDIENCE belong together: set both, or neither"
            )
        return self

    @classmethod
    def embedded(cls, database_url: str, warehouse: str | None = None, roots: tuple[str, ...] = ()) -> Self:
        """Return the settings of a service inside its only client's process.

        Args:
            database_url: where it keeps its records.
            warehouse: where tables that are created by name go; None for ``DELVEC_WAREHOUSE``.
            roots: where tables may lie; without any, everywhere.

        ``DELVEC_ROOTS``, ``DELVEC_NAMESPACE_ROOTS``, ``DELVEC_TOKEN``, ``DELVEC_ICEBERG_CATALOGS``, metrics, the audit log and the
        limits of time and of queues are about a service that others reach, so they do not apply.
        """
        given: dict[str, Any] = {} if warehouse is None else {"warehouse": warehouse}
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
            **_UNLIMITED,
            **given,
        )

    @classmethod
    def of_database(cls, database_url: str | None = None) -> Self:
        """Return the settings of a service that administers a database; None for the one that ``delvec serve`` would use.

        Raises:
            BadRequest: a setting in the environment is wrong.
        """
        given: dict[str, Any] = {} if database_url is None else {"database_url": SecretStr(database_url)}
        try:
            return cls(token=None, authentication="off", log_upkeep=False, metrics=False, **given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = "_".join(str(part) for part in first["loc"][:1])
            raise BadRequest(f"DELVEC_{field.upper()}: {first['msg']}") from None


def check_servable(settings: Settings) -> None:
    """Refuse settings that would open more than their owner asked for.

    Raises:
        BadRequest: there are no roots, or strangers could reach the service without a token.
    """
    if not settings.roots:
        raise BadRequest(
            "A service that others can reach needs the directories that it may work in: "
            "set DELVEC_ROOTS or pass --roots, for example --roots /data,s3://bucket/tables."
        )
    configured = settings.token is not None or settings.oidc_issuer is not None
    if settings.authentication == "off" and configured:
        raise BadRequest(
            "DELVEC_AUTHENTICATION=off contradicts DELVEC_TOKEN and DELVEC_OIDC_ISSUER: leave one of them out."
        )
    asks = configured or settings.authentication == "required"
    if not asks and not _is_loopback(settings.host):
        raise BadRequest(
            f"Without a token the service listens on loopback only, not on '{settings.host}': set DELVEC_TOKEN, DELVEC_OIDC_ISSUER, or "
            "DELVEC_AUTHENTICATION=required where tokens were made (delvec token create)."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
