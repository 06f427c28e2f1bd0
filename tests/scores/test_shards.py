"""Label shards: over 2, 3 and 4 processes everything is what it is in one."""

import pytest

from scores.shard_cases import check_all, check_compiled_and_autocast
from training.run.process_runs import in_processes


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shards_give_what_one_process_with_all_labels_gives(count):
    assert in_processes(check_all, count=count) == [0] * count


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shards_give_the_same_compiled_and_under_autocast(count):
    assert in_processes(check_compiled_and_autocast, count=count) == [0] * count
