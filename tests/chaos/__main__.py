"""``python -m tests.chaos --rounds 1000``: a campaign, with a report of how often each fault struck."""

import argparse
import math
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign
from tests.chaos.oracle import BrokenPromiseError
from tests.support.postgres_server import PostgresServer


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no round after so many")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="delvec-chaos-"))
    with PostgresServer() as postgres, Campaign(folder, postgres, given.seed) as campaign:
        try:
            campaign.run(given.rounds, seconds=given.minutes * 60)
        except BrokenPromiseError as error:
            sys.stdout.write(f"{error}\n\n{campaign.report}\n\ntables and logs are in {folder}\n")
            return 1
        sys.stdout.write(f"{campaign.report}\n")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
