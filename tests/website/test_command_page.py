"""The page of commands and flags says what the help says."""

import command_page


def test_the_page_is_made_from_the_help_texts():
    assert command_page.PAGE.read_text() == command_page.page(), "run python website/command_page.py"


def test_every_command_and_flag_is_on_the_page():
    text = command_page.page()
    for name, command in command_page.commands().items():
        assert f"## manyhot {name}\n" in text
        for each in command.params:
            assert f"`{each.opts[0] if each.opts[0].startswith('-') else each.name.upper()}`" in text
