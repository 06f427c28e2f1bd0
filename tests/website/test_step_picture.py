"""The picture of the steps from softmax to ZLPR is the one that its script draws."""

import step_picture


def test_the_picture_is_the_one_that_is_drawn():
    assert step_picture.PICTURE.read_text() == step_picture.draw(), "run python website/step_picture.py"
    assert step_picture.draw().count("<circle") == sum(len(up) + len(down) for _, up, down, _ in step_picture.STEPS)
