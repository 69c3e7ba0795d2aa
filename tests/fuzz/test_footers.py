"""A Parquet file's footer, however damaged, does not end the process that opens it; 20,000 of them in `make attack ON=footers`."""

import pytest
from tests.fuzz import campaign
from tests.support.random_cases import share_of

CASES = share_of(200)


@pytest.mark.timeout(600)
@pytest.mark.slow("opens each damaged file by every way there is")
def test_damaged_footers_do_not_end_the_process():
    summary = campaign.Summary()
    for result in campaign.run(
        [f"footer-{number}" for number in range(CASES)], command=campaign.FOOTER_WORKER
    ):
        summary.add(result)
    assert not summary.failures, "\n".join(map(campaign.describe, summary.failures[:5]))
    assert sum(summary.outcomes.values()) == CASES
