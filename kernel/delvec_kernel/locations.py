"""Locations of tables and files: canonical form, and the forms used in logs and by Spark.

A location is a URL without a trailing slash: ``file:///data/people``, ``s3://bucket/people``. Paths in a log are
relative to it or absolute (PROTOCOL.md, "Add File and Remove File"). Both are percent-encoded, including ``:``, which
could look like a scheme at the start of a relative path. A path without a scheme is taken literally.
"""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from delvec_errors import CorruptLog, InvalidLocation, LocationNotAllowed

__all__ = [
    "absolute",
    "canonical",
    "canonical_log_path",
    "canonical_log_paths",
    "canonical_relative",
    "folders_above",
    "is_canonical_relative",
    "is_plain_relative",
    "local_name",
    "local_path",
    "log_path",
    "relative_to",
    "resolve",
    "spark_file_path",
    "table_id",
    "within",
]

_TABLES: Final = uuid.UUID("6f0f7d1c-4a52-4b0e-9d0b-3a54ad6f9a31")
_SCHEMES: Final = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "memory": "memory",
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_SCHEME_IN_LOG: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")
_WITH_ACCOUNT: Final = re.compile(r"[$A-Za-z0-9_\-]+@[A-Za-z0-9.\-]+")
"""Azure's container and host; nothing else that a URL parser might read as a query, a port or another host."""
_ESCAPED_SLASH: Final = re.compile("%2f", re.IGNORECASE)
_SAFE: Final = "/!$&'()*,;=@+"
_SEGMENT_START: Final = r"(?:[A-Za-z0-9_\-~!$&'()*,;=@+]|%(?:2[0235]|3[ACEF]|5[BCDE]|60|7[BCD]))"
_SEGMENT: Final = rf"{_SEGMENT_START}(?:{_SEGMENT_START}|\.)*"
_CANONICAL_RELATIVE: Final = rf"{_SEGMENT}(?:/{_SEGMENT})*"
"""Relative paths that are unchanged by decoding and encoding: nearly all, so test for them first."""

is_canonical_relative: Final = re.compile(_CANONICAL_RELATIVE).fullmatch
"""Whether a path in a log is relative and :func:`resolve` only appends it to the location."""
_JAVA_QUOTED: Final = re.compile(
    r"[^A-Za-z0-9_\-!.~'()*,;:$&+=/@\u0080-\U0010ffff]"
    r"|[\u0080-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)


def table_id(location: str) -> str:
    """Return the id of the table at a canonical location.

    The id is derived from the location, so that a client's ids survive the loss of the database, and two replicas
    that register the same table at once agree.
    """
    return str(uuid.uuid5(_TABLES, location))


def canonical(location: str) -> str:
    """Return the canonical form of a location: an absolute path or a URL becomes a URL without a trailing slash.

    Removes repeated slashes and ``.``, and unifies aliases of schemes. Does not follow symbolic links.

    Raises:
        InvalidLocation: it is relative, has an unknown scheme, or has ``..``, an encoded slash, a query or a fragment.
    """
    scheme, authority, path = _split(location)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidLocation(f"{location!r} contains '..'; give the path without it", location=location)
    if "\0" in path:
        raise InvalidLocation(f"{location!r} contains a NUL character", location=location)
    try:
        return f"{scheme}://{authority}" + "".join(f"/{quote(part, safe=_SAFE)}" for part in parts)
    except UnicodeEncodeError:
        raise InvalidLocation(f"{location!r} cannot be encoded in UTF-8", location=location) from None


def _split(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and decoded path of an absolute location."""
    scheme_match = _SCHEME.match(location)
    if scheme_match is None:
        if not location.startswith("/"):
            raise InvalidLocation(
                f"{location!r} is relative or empty; give an absolute path or a URL", location=location
            )
        return "file", "", location
    scheme = _SCHEMES.get(scheme_match.group(1).lower())
    if scheme is None:
        # Do not repeat the location: what looks like an unknown scheme may contain a password.
        scheme_names = ", ".join(sorted(_SCHEMES))
        raise InvalidLocation(
            f"{scheme_match.group(1)!r} is not a supported URL scheme; supported are: {scheme_names}",
            scheme=scheme_match.group(1),
        )
    authority, path = "", location[scheme_match.end() :]
    if path.startswith("//"):
        authority, slash, path = path[2:].partition("/")
        path = slash + path
    _check_authority(scheme, authority, location)
    authority = "" if scheme == "file" else authority
    if path and not path.startswith("/"):
        raise InvalidLocation(f"{location!r} is relative; give an absolute path or a URL", location=location)
    if "?" in path or "#" in path:
        raise InvalidLocation(
            f"{location!r} has a query or a fragment; write %3F for '?' and %23 for '#' in a name",
            location=location,
        )
    if _ESCAPED_SLASH.search(path):
        raise InvalidLocation(
            f"{location!r} contains an encoded slash (%2F), which no file name can have", location=location
        )
    try:
        return scheme, authority, unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise InvalidLocation(f"{location!r} is not percent-encoded UTF-8", location=location) from None


def _check_authority(scheme: str, authority: str, location: str) -> None:
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise InvalidLocation(
                f"{location!r} contains a host name; give file:/// and the absolute path", location=location
            )
    elif scheme != "memory":
        if not authority:
            raise InvalidLocation(f"{location!r} has no bucket or container", location=location)
        account = scheme == "abfss" and _WITH_ACCOUNT.fullmatch(authority)
        if not account and not re.fullmatch(r"[A-Za-z0-9._\-]+", authority):
            raise InvalidLocation(
                f"the bucket or container of the {scheme} location contains characters that are not allowed "
                "there; if they are credentials, put them in the environment"
            )
    elif authority and not re.fullmatch(r"[A-Za-z0-9._\-]+", authority):
        raise InvalidLocation(f"{location!r} is not valid; write memory:///name", location=location)


def absolute(location: str) -> str:
    """Return ``location`` with a relative path resolved against the current directory; URLs are unchanged."""
    if _SCHEME.match(location):
        return location
    return os.path.abspath(os.path.expanduser(location))  # noqa: PTH100, PTH111 - text in, text out


def resolve(location: str, log_path: str) -> str:
    """Return the canonical URL of a file in the log of the table at ``location``.

    As in Spark, an absolute path without a scheme belongs to the location's own storage.

    Raises:
        LocationNotAllowed: a relative path leads out of the table.
        InvalidLocation: an absolute path contains ``..`` or has an unknown scheme.
        CorruptLog: it is not a URL-encoded path.
    """
    if is_canonical_relative(log_path):
        return f"{location}/{log_path}"
    if not log_path or "\0" in log_path:
        raise CorruptLog(
            f"the log of {location} refers to the file {log_path!r}, which is not a valid path", file=log_path
        )
    literal = log_path.replace("?", "%3F").replace("#", "%23")
    relative = not log_path.startswith("/") and not _SCHEME_IN_LOG.match(log_path)
    scheme, rest = location.split("://", 1)
    if log_path.startswith("/"):
        literal = f"{scheme}://{rest.partition('/')[0]}{literal}"
    try:
        if not relative:
            return canonical(literal)
        # Via a dummy URL, so that the rules for absolute paths apply to relative ones, too.
        inside = canonical("memory:///" + literal).removeprefix("memory://")
    except InvalidLocation as error:
        raise (LocationNotAllowed if relative else InvalidLocation)(
            f"the log of {location} refers to the file {log_path!r}, which Delvec does not open: it "
            "contains '..' or an encoded slash, or is in a kind of storage that Delvec does not know",
            location=location,
            file=log_path,
        ) from error
    if not inside:
        raise CorruptLog(
            f"the log of {location} refers to the file {log_path!r}, which is not a valid path", file=log_path
        )
    return location + inside


def within(url: str, root: str) -> bool:
    """Whether the canonical ``url`` is ``root`` or below it, by text alone."""
    return url == root or url.startswith(root if root.endswith("/") else root + "/")


def folders_above(url: str) -> Iterator[str]:
    """Yield the folders above a canonical ``url``, the nearest first, up to the bucket or the file system's root."""
    scheme, _, rest = url.partition("://")
    while "/" in rest and rest.strip("/"):
        rest = rest.rpartition("/")[0]
        yield f"{scheme}://{rest}"


def is_plain_relative(path: str) -> bool:
    """Whether a path in a log is canonical, relative and without encoded characters: the file's own name in the table's folder."""
    return "%" not in path and is_canonical_relative(path) is not None


def local_path(url: str) -> Path | None:
    """Return the path of a canonical ``file`` URL; None for other URLs."""
    name = local_name(url)
    return None if name is None else Path(name)


def local_name(url: str) -> str | None:
    """Return the same as text, for loops over the files of a table: a ``Path`` for each costs more than looking it up."""
    return unquote(url.removeprefix("file:").removeprefix("//")) or "/" if url.startswith("file:") else None


def relative_to(location: str, url: str) -> str:
    """Return the path of ``url`` in the log of the table at ``location``: relative if inside, otherwise unchanged."""
    return url[len(location) + 1 :] if url.startswith(location + "/") else url


def log_path(relative: str) -> str:
    """Return the path in a log of the file that storage names ``relative``, below the table's location.

    Quotes like java.net.URI, which leaves non-ASCII letters unchanged. delta-spark's VACUUM compares this text with that
    of its listing, and would consider a live file in another spelling unreferenced.
    """
    return _JAVA_QUOTED.sub(_percent_encoded, relative).replace(":", "%3A")


def canonical_relative(relative: str) -> str:
    """Return the key of the file that storage names ``relative``; equals :func:`canonical_log_path` of its log paths."""
    return quote(relative, safe=_SAFE)


def canonical_log_path(path: str, location: str) -> str:
    """Return the key of a file in log replay, the same for all spellings of its path.

    ``file:/a``, ``file:///a`` and ``/a`` are equal, as are an absolute path inside the table and its relative form, and
    raw and percent-encoded characters.

    Raises:
        LocationNotAllowed: a relative path leads out of the table.
        InvalidLocation: an absolute path contains ``..`` or has an unknown scheme.
        CorruptLog: it is not a URL-encoded path.
    """
    return path if is_canonical_relative(path) else relative_to(location, resolve(location, path))


def canonical_log_paths(paths: pa.Array, location: str) -> pa.Array:
    """Return :func:`canonical_log_path` of every path, null for null; cheap if all are canonical already."""
    paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    usual = pc.match_substring_regex(paths, f"^(?:{_CANONICAL_RELATIVE})$")
    unusual = pc.fill_null(pc.invert(usual), fill_value=False)
    changed = [canonical_log_path(path, location) for path in paths.filter(unusual).to_pylist()]
    return pc.replace_with_mask(paths, unusual, pa.array(changed, paths.type)) if changed else paths


def spark_file_path(url: str) -> str:
    """Return a canonical ``url`` in the form of Spark's ``_metadata.file_path``: quoted like java.net.URI, ``file:/x``.

    ASCII characters that are illegal in URIs, and all control and space characters, are percent-encoded; other
    non-ASCII characters are unchanged. The scheme is unchanged, so pass the URL with the one that Spark reads.
    """
    scheme, rest = url.split("://", 1)
    authority, slash, path = rest.partition("/")
    quoted = _JAVA_QUOTED.sub(_percent_encoded, unquote(slash + path))
    return f"file:{quoted}" if scheme == "file" else f"{scheme}://{authority}{quoted}"


def _percent_encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode())
