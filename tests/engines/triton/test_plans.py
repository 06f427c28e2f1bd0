"""What the kernels take for granted of the plans they are started with."""

import functools

import pytest
import torch

from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.piece_plans import overlap_plan, pair_plan, step_plan
from manyhot.engines.triton.plans import COUNTER_STRIDE, FEW_SHORT, adds_up, cut_flat, label_plan, plan
from manyhot.engines.triton.replay import workspace_for

SIZES = sorted({base + more for base in (1, *(1 << k for k in range(1, 21))) for more in (-1, 0, 1, base // 5)} - {0})
ROWS = (1, 5, 100, 5000, 65_536, 10_000_000)
KINDS = ("hard", "soft", "lists", None)


def plans():
    for num_labels in SIZES:
        for num_rows in ROWS:
            for kind in KINDS:
                for score_bytes in (2, 4):
                    for together in (132, None):
                        about = {"score_bytes": score_bytes, "lists": kind == "lists", "packed": kind, "together": together}
                        cut = plan(num_rows, num_labels, lean=kind is not None, stage="fused", **about)
                        yield num_rows, num_labels, kind, score_bytes, cut


@pytest.fixture(scope="module")
def cases():
    return list(plans())


def test_programs_cover_their_rows(cases):
    for _, num_labels, _, _, cut in cases:
        assert cut.chunks * cut.segment >= num_labels
        assert (cut.chunks - 1) * cut.segment < num_labels
        assert all(size & (size - 1) == 0 for size in (cut.rows, cut.block, cut.warps)), cut


def test_threads_and_registers_fit_on_a_multiprocessor(cases):
    for *_, cut in cases:
        assert cut.warps <= 32
        assert 32 * cut.warps * (cut.registers or 0) <= 65_536, cut


def test_threads_have_as_many_words_as_are_taken_together(cases):
    """Four where labels become bits, two where the sums of neighbours are one."""
    for _, _, kind, score_bytes, cut in cases:
        if cut.kernel == "packed" and cut.rows == 1 and cut.block >= 512:
            words = cut.block * score_bytes // 8 // (32 * cut.warps)
            assert words >= (4 if (kind, score_bytes) == ("hard", 2) else 2 if cut.block >= 1024 else 1), cut


def test_what_is_added_up_has_room(cases):
    assert len(workspace_for(torch.zeros(1))) == COUNTER_STRIDE + 2 * FEW_SHORT
    assert len(workspace_for(torch.zeros(1), 5)) == COUNTER_STRIDE + 10
    some = False
    for num_rows, _, _, _, cut in cases:
        programs = blocks(num_rows, cut.rows) * cut.chunks
        if adds_up(cut, programs):
            some = True
            assert programs // cut.chunks <= FEW_SHORT, cut
    assert some


def test_a_small_batch_shares_the_kernel_of_one_of_4096_rows():
    for num_labels in (200, 600, 4096):
        for kind, score_bytes in ((kind, score_bytes) for kind in ("hard", "lists") for score_bytes in (2, 4)):
            about = {"lean": True, "stage": "fused", "score_bytes": score_bytes, "lists": kind == "lists", "packed": kind}
            cuts = [plan(rows, num_labels, together=132, **about) for rows in (17, 4096)]
            assert cuts[0] == cuts[1]
            assert all(adds_up(cut, blocks(rows, cut.rows)) for rows, cut in zip((17, 4096), cuts, strict=True))


@pytest.mark.parametrize("lists", [True, False])
def test_rows_of_few_labels_are_cut_alike_whatever_their_number(lists):
    for num_labels in range(1, 129):
        for score_bytes in (2, 4):
            about = {"few": True, "score_bytes": score_bytes, "lean": True, "stage": "fused", "together": 132, "lists": lists}
            found = {plan(num_rows, num_labels, **about) for num_rows in ROWS}
            assert len(found) == 1
            (cut,) = found
            assert cut.kernel == "few"
            assert num_labels <= cut.segment
            assert cut.segment in (cut.block, 2 * cut.block)
            assert cut.rows * cut.block >= 2 * 8 // score_bytes * 32 * cut.warps, "every thread has two words"


def plan_of(num_rows, num_labels, **about):
    return plan(num_rows, num_labels, lean=True, stage="fused", together=132, **about)


def test_rows_stay_whole_as_long_as_a_program_can_hold_them():
    assert plan_of(8192, 32_768, score_bytes=2, packed="hard").chunks == 1
    assert plan_of(8192, 16_384, score_bytes=4, packed="hard").chunks == 1
    assert plan_of(8192, 32_768, score_bytes=4, packed="hard").chunks == 1
    assert plan_of(8192, 65_536, score_bytes=4, packed="hard").chunks == 8
    for score_bytes in (2, 4):
        assert plan_of(8192, 32_768, score_bytes=score_bytes, packed="lists").chunks == 1
        assert plan_of(8192, 32_769, score_bytes=score_bytes, packed="lists").chunks == 5


def test_a_row_little_longer_than_a_power_of_two_is_that_and_a_smaller_tile():
    for num_labels in (300, 600, 4271, 10_000, 20_001):
        found = plan_of(8192, num_labels, score_bytes=2, packed="hard")
        assert found.chunks == 1
        assert found.block < num_labels <= found.segment < 4 / 3 * num_labels


def test_a_row_of_float32_that_would_fill_half_a_tile_is_cut_in_chunks_or_two_tiles():
    assert plan_of(4096, 20_001, score_bytes=4, packed="hard").chunks == 3
    assert plan_of(4096, 24_577, score_bytes=4, packed="hard").chunks == 1
    listed = plan_of(4096, 20_001, score_bytes=4, packed="lists")
    assert (listed.chunks, listed.block, listed.segment) == (1, 16_384, 20_480)


def test_few_rows_are_cut_so_that_all_multiprocessors_have_work():
    assert plan_of(4, 32_768, score_bytes=2, packed="hard").chunks == 4


def test_no_more_programs_wait_for_each_other_than_run_together():
    for num_labels in (1 << 20, 1 << 21, 1 << 22, 10_000_000):
        for score_bytes in (2, 4):
            for kind in ("hard", "lists"):
                found = plan_of(128, num_labels, score_bytes=score_bytes, packed=kind)
                assert found.chunks <= 132
                assert found.chunks * found.segment >= num_labels


def test_rows_too_long_for_chunks_are_read_as_words_in_whole_tiles():
    for num_labels in (2_200_003, 1 << 22, 10_000_000, 300_000_000):
        for score_bytes in (2, 4):
            for kind in ("hard", "lists", "soft"):
                for together in (132, 24):
                    cut = plan(8, num_labels, lean=True, stage="fused", score_bytes=score_bytes, packed=kind, together=together)
                    assert (cut.kernel, cut.rows) == ("words", 1)
                    assert (cut.chunks - 1) * cut.segment < num_labels <= cut.chunks * cut.segment
                    assert cut.chunks <= min(128, together)
                    assert cut.segment % cut.block == 0
                    assert cut.block * score_bytes >= 16 * 32 * cut.warps, "every thread has 16 bytes"
                    assert 32 * cut.warps * cut.registers <= 65_536


def test_the_interpreter_never_waits():
    assert plan(4, 40_000, lean=True, stage="fused", packed="hard").kernel != "packed"


@pytest.mark.parametrize("together", [132, 40, None])
def test_steps_of_two_predictions_are_cut_so_that_programs_can_wait(together):
    for num_labels in (*SIZES, 10_000_000):
        for num_rows in ROWS:
            for score_bytes in (2, 4):
                cut = step_plan(num_rows, num_labels, score_bytes=score_bytes, together=together)
                assert (cut.chunks - 1) * cut.segment < num_labels <= cut.chunks * cut.segment
                assert cut.segment % cut.block == 0
                assert all(size & (size - 1) == 0 for size in (cut.rows, cut.block, cut.segment, cut.warps)), cut
                assert 32 * cut.warps <= cut.rows * cut.block or cut.warps == 1, "every thread has a label"
                assert cut.block >= 16 // score_bytes, "a thread has neighbours to add up"
                assert cut.rows == 1 or cut.chunks == 1
                assert cut.kernel == ("waiting" if cut.chunks > 1 and together else "rows")
                assert cut.chunks <= min(128, together or 128)


@pytest.mark.parametrize("together", [132, 40, None])
@pytest.mark.parametrize("make", [pair_plan, overlap_plan, functools.partial(overlap_plan, kept=1)])
def test_rows_in_pieces_are_covered_and_only_programs_that_run_together_wait(make, together):
    for num_labels in (*SIZES, 600, 4271, 10_000_000):
        for num_rows in ROWS:
            for score_bytes in (2, 4):
                cut = make(num_rows, num_labels, score_bytes=score_bytes, together=together)
                tail = cut.segment - cut.block
                assert (cut.chunks - 1) * cut.segment < num_labels <= cut.chunks * cut.segment
                assert all(size & (size - 1) == 0 for size in (cut.rows, cut.block, tail, cut.warps)), cut
                assert tail == 0 or (cut.chunks == cut.rows == 1 and 16 <= tail < cut.block)
                assert cut.rows == 1 or cut.chunks == 1
                assert cut.warps <= 16
                assert (cut.kernel == "waiting") == (1 < cut.chunks <= min(128, together or 0))


def test_rows_that_are_little_longer_than_a_power_of_two_take_two_tiles():
    for make in (pair_plan, overlap_plan):
        assert make(100, 4271, score_bytes=2, together=132)[2:5:2] == (4096, 4352)
        assert make(100, 600, score_bytes=2, together=132)[2:5:2] == (512, 640)
        assert make(100, 8000, score_bytes=2, together=None).segment == make(100, 8000, score_bytes=2, together=None).block


@pytest.mark.parametrize("score_bytes", [2, 4])
def test_programs_of_one_line_are_no_more_than_leave_their_sums(score_bytes):
    for size in (2048, 5000, 1 << 20, 1 << 33):
        cut, programs = cut_flat(132, size, score_bytes=score_bytes)
        assert 1 <= programs <= min(FEW_SHORT, max(1, size // cut.block))


def test_programs_for_labels_by_themselves_cover_their_rows():
    for num_labels in (*SIZES, 10_000_000):
        for num_rows in ROWS:
            for score_bytes in (2, 4):
                cut = label_plan(num_rows, num_labels, score_bytes=score_bytes)
                assert (cut.chunks - 1) * cut.block < num_labels <= cut.chunks * cut.block == cut.chunks * cut.segment
                assert all(size & (size - 1) == 0 for size in (cut.rows, cut.block, cut.warps)), cut
                assert cut.warps <= 8
                assert cut.rows == 1 or cut.chunks == 1
