"""``python -m tests.soak --minutes 60``: clients on three replicas that are replaced, and what they were told."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.postgres_server import PostgresServer
from tests.soak.soak import Soak


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--trouble-every", type=float, default=60, help="seconds between a restart and the next"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="delvec-soak-"))
    with PostgresServer() as postgres, Soak(folder, postgres, given.clients, given.seed) as soak:
        report = soak.run(given.minutes * 60, trouble_every=given.trouble_every)
    sys.stdout.write(f"{report}\n")
    if report.broken:
        sys.stdout.write(f"tables and logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
