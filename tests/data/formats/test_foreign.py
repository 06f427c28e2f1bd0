"""Files of other programs: the error names what they are and what to do."""

import io
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.read import read_examples


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "application/vnd.oasis.opendocument.spreadsheet" if name == "mimetype" else "<x/>")
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("rows.csv")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"a,b"))
    return file.getvalue()


def database(folder):
    path = folder / "made.db"
    with sqlite3.connect(path) as made:
        made.execute("create table rows (text)")
    made.close()
    return path.read_bytes()


CONTENTS = {
    "book.xlsx": (zipped("[Content_Types].xml", "xl/workbook.xml"), "workbook.*as CSV"),
    "book.ods": (zipped("mimetype", "content.xml"), "workbook.*as CSV"),
    "book.xls": (bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 100, "workbook.*as CSV"),
    "rows.zip": (zipped("rows.csv"), "archive.*Unpack"),
    "rows.tar": (tarred(), "archive.*Unpack"),
    "rows.pkl": (pickle.dumps({"text": ["a"]}), "pickle.*Parquet"),
    "rows.pdf": (b"%PDF-1.7\n1 0 obj\n", "PDF"),
    "rows.h5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 50, "Parquet"),
    "rows.csv": (zipped("xl/styles.xml"), "workbook.*as CSV"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_of_another_program_is_named(name, tmp_path):
    content, words = CONTENTS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: must be a file of examples; it is .*{words}"):
        read_examples(tmp_path / name)


def test_a_database_is_named(tmp_path):
    (tmp_path / "rows.db").write_bytes(database(tmp_path))
    with pytest.raises(DataError, match="it is a SQLite database"):
        read_examples(tmp_path / "rows.db")


def test_matrices_in_a_zip_archive_are_read(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.eye(3), y=np.eye(3))
    assert len(read_examples(tmp_path / "rows.npz")) == 3
