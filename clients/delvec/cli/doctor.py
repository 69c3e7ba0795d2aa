"""``delvec doctor``: check whether this machine can run the service."""

from dataclasses import asdict

import typer
from pydantic import ValidationError

from delvec.cli.options import session
from delvec.cli.output import print_json, print_table, say
from delvec_errors import EngineUnavailable

__all__ = ["doctor"]


def doctor(context: typer.Context) -> int:
    """Check everything `delvec serve` needs and suggest fixes: settings, database, storage, clocks, Java and PySpark.

    It reads the same DELVEC_ variables as the service, writes and deletes a test file in each root, and changes nothing
    else. Exits with 1 if the service would not work.

    [bold]DELVEC_ROOTS=s3://bucket/lake delvec doctor[/bold]
    """
    try:
        from delvec_service.config import Settings, invalid_settings
        from delvec_service.doctor import DoctorFinding, examine
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service needs {error.name}: pip install '.[service]' in Delvec's clone"
        ) from error
    try:
        findings = list(examine(Settings()))
    except ValidationError as error:
        findings = [
            DoctorFinding("configuration", "failed", one, "see docs/service.md")
            for one in invalid_settings(error)
        ]
    code = int(any(one.state == "failed" for one in findings))
    if session(context).as_json:
        print_json({"findings": [asdict(one) for one in findings], "ok": not code})
        return code
    print_table(["check", "state", "found"], [(one.check, one.state, one.found) for one in findings])
    for one in findings:
        if one.advice:
            say(f"{one.check}: {one.advice}")
    return code
