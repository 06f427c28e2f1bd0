"""LinearHead on a device mesh: labels divided, rows divided, and saved for another number of processes."""

from heads.mesh_cases import check_all, check_loaded
from training.run.process_runs import in_processes


def test_four_processes_train_one_head_and_three_load_it(tmp_path):
    assert in_processes(check_all, tmp_path, count=4) == [0] * 4
    assert in_processes(check_loaded, tmp_path, count=3) == [0] * 3
