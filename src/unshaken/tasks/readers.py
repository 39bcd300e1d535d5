"""Records out of files, one at a time: CSV, TSV, JSON lines, JSON, Parquet, Arrow and folders of text files.

Every reader is a generator, so memory does not grow with the file (a JSON array is the exception: the format has to be
read whole). Each record says where it stands, because an error without a row number costs its reader an hour.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from unshaken.errors import UnshakenError
from unshaken.names import optional
from unshaken.schema import parse_json

LONGEST = 2**27  # bytes of a line, characters of a field: a lost quotation mark must not eat the memory


class Record(NamedTuple):
    """One row and where it stands in its file."""

    where: str  # "line 17" or "row 16", counted from 1
    fields: dict[str, Any]


def numbered(rows: Iterable[dict[str, Any]]) -> Iterator[Record]:
    """The records of rows that stand in no file, or in one without lines."""
    return (Record(f"row {number}", fields) for number, fields in enumerate(rows, start=1))


def read(path: Path) -> Iterator[Record]:
    """The records of one file, by its ending."""
    if not path.is_file():
        raise UnshakenError(f"no such file: {path}")
    if path.suffix.lower() not in FORMATS:
        raise UnshakenError(f"{path}: the ending {path.suffix!r} is not known; known: {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()](path)


def text_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, split at line feeds only: U+2028 and its kind are text, not ends of rows."""
    with path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST + 1), b""), start=1):
            if len(line) > LONGEST:
                raise UnshakenError(f"{path}: line {number} has more than {LONGEST:,} bytes; break it into rows")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                bad = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
                raise UnshakenError(f"{path}: line {number} is not UTF-8 ({bad}); save the file as UTF-8") from error


def read_csv(path: Path) -> Iterator[Record]:
    """Comma or semicolon separated, whichever the header has more of; quoted fields may hold line breaks."""
    csv.field_size_limit(LONGEST)  # 131,072 otherwise
    first = next(text_lines(path), "")
    rows = csv.reader(text_lines(path), delimiter=max(",;", key=first.count), strict=True)
    header: list[str] | None = None
    while True:
        start = rows.line_num + 1
        try:
            values = next(rows, None)
        except csv.Error as error:
            raise UnshakenError(f"{path}: line {start} is not well-formed CSV ({error})") from error
        if header is None:
            header = _header(path, values or [])
        elif values is None:
            return
        elif values:
            yield _record(path, f"line {start}", header, values)


def read_tsv(path: Path) -> Iterator[Record]:
    """Tab separated as pandas writes it: a field wholly in quotes loses them. Fields hold no line breaks."""
    for record in read_plain_tsv(path):
        yield record._replace(fields={key: _unquoted(value) for key, value in record.fields.items()})


def read_plain_tsv(path: Path) -> Iterator[Record]:
    """Tab separated as GLUE and SNLI publish it: a quotation mark is text, and often without its partner."""
    lines = text_lines(path)
    header = _header(path, next(lines, "").rstrip("\r\n").split("\t"))
    for number, line in enumerate(lines, start=2):
        if line.strip("\r\n"):
            yield _record(path, f"line {number}", header, line.rstrip("\r\n").split("\t"))


def _header(path: Path, names: list[str]) -> list[str]:
    if not any(name.strip() for name in names):
        raise UnshakenError(f"{path} is empty; its first line must name the columns")
    names = [name.strip() for name in names]
    for name, count in Counter(names).items():
        if count > 1:
            raise UnshakenError(f"{path}: two columns are named {name!r}")
    return names


def _record(path: Path, where: str, header: list[str], values: list[str]) -> Record:
    if len(values) != len(header):
        raise UnshakenError(f"{path}: {where} has {len(values)} fields, the header has {len(header)}")
    return Record(where, dict(zip(header, values, strict=True)))


def _unquoted(value: str) -> str:
    inner = value[1:-1]
    quoted = len(value) >= 2 and value[0] == value[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else value


def read_jsonl(path: Path) -> Iterator[Record]:
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        yield _object(path, f"line {number}", parse_json(line, f"{path}: line {number}", finite=False))


def read_json(path: Path, key: str | None = None) -> Iterator[Record]:
    """A list of objects, or the list under `key` (AdvGLUE keeps six tasks in one file)."""
    value = parse_json(path.read_bytes().removeprefix(codecs.BOM_UTF8), str(path), finite=False)
    if key is not None:
        value = value.get(key, []) if isinstance(value, dict) else None
    elif isinstance(value, dict) and list(value) == ["data"]:
        value = value["data"]
    if not isinstance(value, list):
        wanted = "a list of objects" if key is None else f"an object whose {key!r} is a list of objects"
        raise UnshakenError(f"{path}: expected {wanted}")
    for number, item in enumerate(value, start=1):
        yield _object(path, f"row {number}", item)


def _object(path: Path, where: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise UnshakenError(f"{path}: {where} is {type(value).__name__}, not an object with named fields")
    for name, field in value.items():
        if _is_torn(name) or (isinstance(field, str) and _is_torn(field)):
            raise UnshakenError(
                f"{path}: {where} has half a surrogate pair in {name!a}, which is no character; repair it"
            )
    return Record(where, value)


def _is_torn(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def read_parquet(path: Path) -> Iterator[Record]:
    _, parquet = _pyarrow(path)
    with _readable(path, "Parquet"), parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        # One group of rows at a time: over all of them pyarrow reads ahead, and keeps more the longer the file is.
        groups = (file.iter_batches(1024, row_groups=[n], use_threads=False) for n in range(file.num_row_groups))
        yield from numbered(_arrow_rows(chain.from_iterable(groups)))


def read_arrow(path: Path) -> Iterator[Record]:
    """A shard that `Dataset.save_to_disk` wrote."""
    pyarrow, _ = _pyarrow(path)
    with _readable(path, "Arrow"), pyarrow.memory_map(str(path)) as stream:
        yield from numbered(_arrow_rows(pyarrow.ipc.open_stream(stream)))


@contextlib.contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Whatever pyarrow finds wrong with a file, as one error."""
    pyarrow, _ = _pyarrow(path)
    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnshakenError(f"{path}: not a {kind} file, or a broken one ({reason})") from error


def _pyarrow(path: Path) -> tuple[Any, Any]:
    missing = f"{path}: needs pyarrow; pip install pyarrow, or save the file as JSONL"
    return optional("pyarrow", missing), optional("pyarrow.parquet", missing)


def _arrow_rows(batches: Any) -> Iterator[dict[str, Any]]:
    for batch in batches:
        batch.validate(full=True)  # offsets that point outside the file would be followed otherwise
        yield from batch.to_pylist()


def class_labels(path: Path, column: str) -> tuple[str, ...]:
    """The class names that `datasets` wrote into a Parquet or Arrow file; empty if there are none."""
    ending = path.suffix.lower()
    if ending not in (".parquet", ".arrow"):
        return ()
    pyarrow, parquet = _pyarrow(path)
    with _readable(path, ending[1:].capitalize()):
        if ending == ".parquet":
            metadata = parquet.read_schema(path).metadata
        else:
            with pyarrow.memory_map(str(path)) as stream:
                metadata = pyarrow.ipc.open_stream(stream).schema.metadata
    names = parse_json((metadata or {}).get(b"huggingface", b"{}"), f"{path}: its note of features")
    for key in ("info", "features", column, "names"):
        names = names.get(key) if isinstance(names, dict) else None
    is_named = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_named else ()


def read_class_folders(folder: Path) -> Iterator[Record]:
    """`neg/0_3.txt`, `pos/0_9.txt`: one file per text, the folder is its label (aclImdb)."""
    for label in sorted(child.name for child in folder.iterdir() if child.is_dir() and child.name != "unsup"):
        for path in sorted((folder / label).glob("*.txt"), key=_natural_order):
            name = f"{label}/{path.stem}"
            yield Record(f"{name}.txt", {"id": name, "label": label, "text": "".join(text_lines(path))})


def _natural_order(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)]


FORMATS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
