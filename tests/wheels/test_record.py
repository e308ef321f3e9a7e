from __future__ import annotations

from downstream.wheels.record import Row, read_rows, row, write_rows

GOOD = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


def test_a_row_is_urlsafe_base64_without_padding_and_a_size() -> None:
    assert row("empty", []) == Row("empty", GOOD, 0)
    assert row("split", [b"ab", b"c"]) == row("split", [b"abc"])


def test_paths_with_commas_and_quotes_survive() -> None:
    rows = [Row('a,"b".py', GOOD, 0), Row("plain.py", GOOD, 0)]
    text = write_rows(rows, "x.dist-info/RECORD")
    assert text == f'"a,""b"".py",{GOOD},0\nplain.py,{GOOD},0\nx.dist-info/RECORD,,\n'.encode()
    assert list(read_rows(text).values()) == rows


def test_only_rows_that_can_be_taken_at_their_word_are_read() -> None:
    hexadecimal = "sha256=" + "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    text = (
        f"good,{GOOD},0\nhex,{hexadecimal},0\npadded,{GOOD}=,0\nmd5,md5=1B2M2Y8AsgTpgAmY7PhCfg,0\n"
        f"nosize,{GOOD},\ntwice,{GOOD},0\ntwice,{GOOD},1\ntwice,{GOOD},0\nshort,{GOOD}\n\nx.dist-info/RECORD,,\n"
    )
    assert read_rows(text.encode()) == {"good": Row("good", GOOD, 0)}


def test_a_usual_record_and_an_odd_one_are_read_alike() -> None:
    usual = f"a.py,{GOOD},0\nb/c.py,{GOOD},17\nx.dist-info/RECORD,,\n"
    rows = read_rows(usual.encode())
    assert rows == {"a.py": Row("a.py", GOOD, 0), "b/c.py": Row("b/c.py", GOOD, 17)}
    assert read_rows(usual.replace("\n", "\r\n").encode()) == rows
    assert read_rows(usual.replace("a.py", '"a.py"').encode()) == rows
    assert read_rows(f"a.py,,\n{usual}".encode()) == {"b/c.py": rows["b/c.py"]}  # named twice, once without digest
    assert read_rows(f"{usual}a.py,{GOOD},0".encode()) == {"b/c.py": rows["b/c.py"]}
    assert read_rows(b"") == {}
