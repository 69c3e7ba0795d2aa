"""``delvec doctor``: checks whether this machine can run the service, and what to do if it cannot.

Tested in `tests/integration/client/cli/test_doctor_command.py`.
"""

import difflib
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from delvec_errors import AtomicCreateUnsupported, DelvecError
from delvec_kernel.locations import folders_above, local_path
from delvec_service.config import Settings, check_servable
from delvec_service.credentials.aws_sts import AwsSts
from delvec_service.store.database import Database
from delvec_service.store.objects import ObjectStore
from delvec_service.tables.namespace_roots import NamespaceRoots
from delvec_storage.roots import Roots
from delvec_storage.trees import tables_among

__all__ = ["DoctorFinding", "examine"]

State = Literal["ok", "warning", "failed"]

_OTHER_VARIABLES: Final = frozenset({"URL", "DEBUG", "SPARK_BROADCAST_BYTES", "CORPUS", "REQUIRE"})
"""Variables of the client and of Delvec's tests."""
_SETTING: Final = re.compile("DELVEC_(?!TEST_)")
_MIN_SIMILARITY: Final = 0.75
_RACERS: Final = 8
_JAVA: Final = 17
_JAVA_SECONDS: Final = 20
_CLOCK_SECONDS: Final = 60.0
_SLOW_SECONDS: Final = 0.5


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check.

    Attributes:
        check: what was checked: ``configuration``, ``variables``, ``address``, ``database``, ``identity-provider``, ``storage``,
            ``put-if-absent``, ``clock``, ``credentials``, ``java``, ``pyspark``.
        state: ``failed``: the service does not work; ``warning``: it works, with a problem.
        found: what was found.
        advice: what to do; empty if nothing.
    """

    check: str
    state: State
    found: str
    advice: str = ""


def examine(settings: Settings) -> Iterator[DoctorFinding]:
    """Yield findings one by one. Each root gets a temporary file. Nothing is raised: errors are findings."""
    yield from _configuration(settings)
    yield from _variables()
    yield from _address(settings)
    yield _database(settings)
    yield from _identity_provider(settings)
    try:
        roots = NamespaceRoots(settings.roots, settings.namespace_roots, settings.warehouse)
    except DelvecError as error:
        yield DoctorFinding(
            "storage",
            "failed",
            error.message,
            "correct DELVEC_ROOTS, DELVEC_NAMESPACE_ROOTS and DELVEC_WAREHOUSE",
        )
    else:
        for root in dict.fromkeys(roots.everywhere):
            yield from _storage(root, roots.everywhere)
        yield from _credentials(settings, roots.everywhere)
    yield _java()
    yield _pyspark()


def _configuration(settings: Settings) -> Iterator[DoctorFinding]:
    try:
        check_servable(settings)
    except DelvecError as error:
        yield DoctorFinding("configuration", "failed", error.message, "see docs/service.md")
        return
    url = settings.database_url.get_secret_value()
    if settings.workers > 1 and url.startswith("sqlite"):
        yield DoctorFinding(
            "configuration",
            "warning",
            f"{settings.workers} workers share an SQLite database, so their writes wait for each other",
            "set DELVEC_DATABASE_URL to a PostgreSQL database",
        )
    elif settings.fault_points:
        yield DoctorFinding("configuration", "warning", "fault points are armed", "unset DELVEC_FAULT_POINTS")
    else:
        own = ", ".join(sorted(settings.namespace_roots))
        count = len(settings.roots)
        found = (
            f"{count} root{'' if count == 1 else 's'}{(f', and those of the namespaces {own}' if own else '')}, port "
            f"{settings.port}"
        )
        yield DoctorFinding("configuration", "ok", found)


def _variables() -> Iterator[DoctorFinding]:
    """Report variables that look like settings, but are none: a misspelled one has no effect."""
    setting_names = {name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    variable_names = {name.removeprefix("DELVEC_") for name in os.environ if _SETTING.match(name)}
    for name in sorted(variable_names - setting_names):
        close = difflib.get_close_matches(name, setting_names, 1, _MIN_SIMILARITY)
        meant = f"; did you mean DELVEC_{close[0]}?" if close else ""
        yield DoctorFinding(
            "variables",
            "warning",
            f"DELVEC_{name} is not a setting and has no effect{meant}",
            "docs/service.md has the settings",
        )


def _address(settings: Settings) -> Iterator[DoctorFinding]:
    """Report an address that is not this machine's. The port may be in use: by the service."""
    try:
        found = socket.getaddrinfo(settings.host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except (OSError, UnicodeError) as error:
        yield DoctorFinding(
            "address",
            "failed",
            f"the service cannot listen on '{settings.host}': {getattr(error, 'strerror', None) or error}",
            "set DELVEC_HOST to an address of this machine: 0.0.0.0 for all, 127.0.0.1 for this machine only",
        )


def _identity_provider(settings: Settings) -> Iterator[DoctorFinding]:
    if settings.oidc_issuer is None:
        return
    from delvec_service.auth.oidc import IdentityProvider, OidcSettings  # with cryptography

    wanted = OidcSettings.of(settings)
    if wanted is None:
        return
    try:
        count = IdentityProvider(wanted).check()
    except DelvecError as error:
        yield DoctorFinding(
            "identity-provider",
            "failed",
            error.message,
            "correct DELVEC_OIDC_ISSUER (exactly the `iss` of its tokens) or DELVEC_OIDC_JWKS_URL; the provider must be "
            "reachable from here",
        )
        return
    if not count:
        yield DoctorFinding(
            "identity-provider",
            "failed",
            f"{settings.oidc_issuer} has no keys for signatures",
            "see its settings",
        )
    else:
        keys = f"{count} key{'' if count == 1 else 's'}"
        yield DoctorFinding("identity-provider", "ok", f"{settings.oidc_issuer} has {keys} for signatures")


def _database(settings: Settings) -> DoctorFinding:
    try:
        database = Database(settings.database_url.get_secret_value())
    except DelvecError as error:
        return DoctorFinding("database", "failed", error.message, "correct DELVEC_DATABASE_URL")
    try:
        revision = database.revision()
        if revision is None:
            return DoctorFinding(
                "database", "ok", "it answers and is empty; `delvec serve` creates the tables when it starts"
            )
        began = time.perf_counter()
        database.check()
        seconds = time.perf_counter() - began
    except DelvecError as error:
        return DoctorFinding(
            "database",
            "failed",
            error.message,
            "start the database, or run `delvec database migrate` if its schema is old",
        )
    finally:
        database.close()
    found = f"schema revision {revision}, answers in {seconds * 1000:.0f} ms"
    if seconds > _SLOW_SECONDS:
        return DoctorFinding(
            "database", "warning", found, "put the database closer to the service: commits wait for it"
        )
    return DoctorFinding("database", "ok", found)


def _is_missing(directory: Path) -> bool:
    """Whether nothing is there; False if that cannot be found out, for which writing to it has an error."""
    try:
        directory.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _storage(root: str, roots: Roots) -> Iterator[DoctorFinding]:
    local = local_path(root)
    if local is not None and _is_missing(local):
        yield DoctorFinding(
            "storage",
            "warning",
            f"the directory {local} does not exist, and was not checked; the service would create it",
            "create it, or mount its volume, if the name is right",
        )
        return
    objects = ObjectStore(root, is_allowed=roots.allows)
    name = f"_delvec_doctor_{uuid.uuid4().hex}.tmp"
    try:
        began = time.time()
        objects.put(name, b"doctor")
        object_meta = objects.head(name)
        read = objects.get(name)
        seconds = time.time() - began
        if object_meta is None or read != b"doctor":
            yield DoctorFinding(
                "storage",
                "failed",
                f"{root} does not return what was just written",
                "use a store that is consistent after a write, without a cache in front",
            )
            return
        yield DoctorFinding(
            "storage", "ok", f"{root} can be written, read and deleted; {seconds * 1000:.0f} ms"
        )
        yield _clock(root, object_meta.last_modified_ms / 1000 - began)
        objects.delete(name)
        yield _put_if_absent(root, objects, name)
        for around in tables_among([root, *folders_above(root)])[:1]:
            yield DoctorFinding(
                "storage",
                "failed",
                f"{root} is in the Delta table at {around}, so no other table can be there",
                "use a root that is in no table",
            )
    except DelvecError as error:
        yield DoctorFinding(
            "storage",
            "failed",
            error.message,
            "check the permissions and environment variables of the store: docs/object-stores.md",
        )
    except OSError as error:
        yield DoctorFinding(
            "storage",
            "failed",
            f"{root}: {error}",
            "check that the directory exists, and its permissions",
        )
    finally:
        with suppress(DelvecError, OSError):
            objects.delete(name)


def _credentials(settings: Settings, roots: Roots) -> Iterator[DoctorFinding]:
    """Request an STS session, if the service is configured to issue them, for a table that does not exist."""
    root = next((root for root in roots if root.startswith("s3:")), None)
    if settings.credential_role_arn is None:
        return
    if root is None:
        yield DoctorFinding(
            "credentials",
            "warning",
            "a role for credentials is set, but no root is on S3",
            "unset DELVEC_CREDENTIAL_ROLE_ARN",
        )
        return
    seconds = settings.credential_seconds
    try:
        AwsSts(settings.credential_role_arn, seconds).vend(f"{root}/_delvec_doctor", "READ", "doctor")
    except DelvecError as error:
        yield DoctorFinding("credentials", "failed", error.message, "see docs/object-stores.md")
    else:
        yield DoctorFinding(
            "credentials", "ok", f"STS issues sessions of {settings.credential_role_arn} for {seconds} s"
        )


def _clock(root: str, ahead: float) -> DoctorFinding:
    """Compare the storage's clock with this machine's; a file system may round to two seconds."""
    if abs(ahead) <= _CLOCK_SECONDS:
        return DoctorFinding(
            "clock", "ok", f"the clocks of {root} and this machine agree to {abs(ahead):.0f} s"
        )
    which = "ahead of" if ahead > 0 else "behind"
    return DoctorFinding(
        "clock",
        "warning",
        f"the clock of {root} is {abs(ahead):.0f} s {which} this machine's",
        "synchronize both with NTP: VACUUM and time travel compare times",
    )


def _put_if_absent(root: str, objects: ObjectStore, name: str) -> DoctorFinding:
    """Let several writers create one file at once; exactly one may succeed."""
    start = threading.Barrier(_RACERS)

    def create(number: int) -> bool:
        start.wait(60)
        return objects.put_if_absent(name, f"writer {number}".encode())

    try:
        with ThreadPoolExecutor(_RACERS) as pool:
            winners = sum(pool.map(create, range(_RACERS)))
    except AtomicCreateUnsupported as error:
        return DoctorFinding("put-if-absent", "failed", error.message, "use a store with conditional writes")
    if winners == 1:
        return DoctorFinding(
            "put-if-absent", "ok", f"of {_RACERS} writers at {root}, exactly one created the file"
        )
    return DoctorFinding(
        "put-if-absent",
        "failed",
        f"of {_RACERS} writers at {root}, {winners} were told that they created the file: commits would replace "
        "each other",
        "use a store with conditional writes (If-None-Match), or without a proxy that drops the condition",
    )


def _java() -> DoctorFinding:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None  # noqa: PTH118 - a search path
    java = java or shutil.which("java")
    advice = f"install Java {_JAVA} and set JAVA_HOME if you use Spark; nothing else needs it"
    if java is None:
        return DoctorFinding("java", "warning", "Java is not installed", advice)
    try:
        process = subprocess.run(  # noqa: S603 - the program that was found
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding("java", "warning", f"{java} does not run: {error}", advice)
    said = re.search(r'version "(\d+)', process.stderr + process.stdout)
    if process.returncode or said is None:
        return DoctorFinding("java", "warning", f"{java} does not report its version", advice)
    if int(said[1]) < _JAVA:
        return DoctorFinding("java", "warning", f"{java} is Java {said[1]}", advice)
    return DoctorFinding("java", "ok", f"Java {said[1]}")


def _pyspark() -> DoctorFinding:
    advice = "run pip install '.[spark]' in Delvec's clone if you use Spark; nothing else needs it"
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return DoctorFinding("pyspark", "warning", "PySpark is not installed", advice)
    if not (4, 0) <= tuple(int(part) for part in found.split(".")[:2]) < (4, 4):
        return DoctorFinding("pyspark", "warning", f"PySpark {found}; Delvec supports 4.0 to 4.3", advice)
    return DoctorFinding("pyspark", "ok", f"PySpark {found}")
