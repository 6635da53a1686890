"""Write the generated modules from spec/amqp0-9-1.json.

    python tools/codegen.py            write them
    python tools/codegen.py --check    exit 1 when one of them is not what the table says

The output is flat on purpose: a method's fields are read and written one after the other, without a loop over
field descriptions, which is several times faster when interpreted and easy to read in a debugger. It has the
shape that `ruff format` gives it, so the formatter leaves it alone.
"""

from __future__ import annotations

import json
import keyword
import sys
import tomllib
from pathlib import Path
from typing import Any

from codegen_texts import METHODS_HEAD, METHODS_TAIL, PROPERTIES_HEAD, REPLY_CODES_HEAD

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "spec" / "amqp0-9-1.json"
METHODS = ROOT / "src" / "penstock" / "wire" / "methods.py"
PROPERTIES = ROOT / "src" / "penstock" / "wire" / "properties.py"
REPLY_CODES = ROOT / "src" / "penstock" / "reply_codes.py"

LINE_LENGTH: int = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["line-length"]

# The Python type of each AMQP type, and the octets of those that have a fixed width.
PYTHON_TYPES = {
    "bit": "bool",
    "octet": "int",
    "short": "int",
    "long": "int",
    "longlong": "int",
    "timestamp": "int",
    "shortstr": "str",
    "longstr": "bytes",
    "table": "Table",
}
WIDTHS = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "timestamp": 8}
RESERVED_OCTETS = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "shortstr": 1, "longstr": 4, "table": 4}


class Field:
    """One argument of a method, or one property."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.reserved = "reserved" in row
        self.type: str = row["reserved"] if self.reserved else row["type"]
        assert self.type in PYTHON_TYPES, f"unknown type {self.type}"
        name = "" if self.reserved else row["name"].replace("-", "_")
        self.name = name + "_" if keyword.iskeyword(name) else name
        # A short string that need not be UTF-8.
        self.any_octets = bool(row.get("any-octets"))
        self.has_default = "default" in row
        self.default: object = row.get("default")


class Method:
    """One method of the table."""

    def __init__(self, class_row: dict[str, Any], row: dict[str, Any]) -> None:
        self.wire_name = f"{class_row['name']}.{row['name']}"
        self.class_name = "".join(word.title() for word in self.wire_name.replace(".", "-").split("-"))
        self.function_name = "_decode_" + self.wire_name.replace(".", "_").replace("-", "_")
        self.index: int = class_row["id"] << 16 | row["id"]
        self.sender: str = row["from"]
        self.replies = [f"{class_row['name']}.{reply}" for reply in row.get("replies", [])]
        self.doc: str = row["doc"]
        self.fields = [Field(field) for field in row["fields"]]
        self.arguments = [field for field in self.fields if not field.reserved]

    def docstring(self) -> list[str]:
        """What it says, who sends it and what is answered."""
        sender = "client and server" if self.sender == "both" else self.sender
        second = f"From the {sender}."
        if self.replies:
            second += f" Answered by {' or '.join(self.replies)}."
        line = f'    """{self.doc} {second}"""'
        return [line] if len(line) <= LINE_LENGTH else [f'    """{self.doc}', "", f"    {second}", '    """']


def load(path: Path) -> tuple[list[Method], list[Field], list[dict[str, Any]]]:
    """The table, checked for what a slip of the pen would break."""
    table = json.loads(path.read_text(encoding="utf-8"))
    methods = [Method(row, method) for row in table["classes"] for method in row["methods"]]
    by_name = {method.wire_name: method for method in methods}
    assert len(by_name) == len(methods), "a method's name appears twice"
    assert len({method.index for method in methods}) == len(methods), "a method's ids appear twice"
    for method in methods:
        assert method.sender in ("client", "server", "both"), method.wire_name
        for reply in method.replies:
            assert by_name[reply].sender in ("both", {"client": "server", "server": "client"}.get(method.sender))
        defaults = [field.has_default for field in method.arguments]
        assert defaults == sorted(defaults), f"{method.wire_name}: an argument without default after one with"
    properties = [Field(row) for row in table["basic_properties"]]
    assert len(properties) <= 14, "the two lowest flag bits are no properties"
    for code in table["reply_codes"]:
        assert code["closes"] in ("nothing", "channel", "connection"), code["name"]
    return methods, properties, table["reply_codes"]


def octets(raw: bytes) -> str:
    """A bytes literal in hexadecimal, so that ids are recognised in a trace."""
    return 'b"' + "".join(f"\\x{octet:02x}" for octet in raw) + '"'


def fitted(indent: str, head: str, parts: list[str], between: str, tail: str) -> list[str]:
    """An expression on one line; on a line of its own, or with a line for each part, when that is too long."""
    line = indent + head + between.join(parts) + tail
    if len(line) <= LINE_LENGTH:
        return [line]
    inner = indent + "    "
    if between == ", ":
        return [indent + head, *[f"{inner}{part}," for part in parts], indent + tail]
    if len(inner + between.join(parts)) <= LINE_LENGTH:
        return [indent + head + "(", inner + between.join(parts), indent + ")"]
    first, *rest = parts
    return [indent + head + "(", inner + first, *[f"{inner}{between.strip()} {part}" for part in rest], indent + ")"]


def literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def slots(names: list[str]) -> list[str]:
    """The __slots__ line; sorted, as the linter wants it."""
    ordered = [f'"{name}"' for name in sorted(names)]
    if len(ordered) == 1:
        return [f"    __slots__ = ({ordered[0]},)"]
    return fitted("    ", "__slots__ = (", ordered, ", ", ")")


def init(method: Method) -> list[str]:
    """The constructor; a table that is left out is a new, empty one."""
    if not method.arguments:
        return []
    parameters = ["self"]
    body = []
    for field in method.arguments:
        python_type = PYTHON_TYPES[field.type]
        value = field.name
        if field.has_default and field.type == "table":
            parameters.append(f"{field.name}: {python_type} | None = None")
            value = f"{{}} if {field.name} is None else {field.name}"
        elif field.has_default:
            parameters.append(f"{field.name}: {python_type} = {literal(field.default)}")
        else:
            parameters.append(f"{field.name}: {python_type}")
        body.append(f"        self.{field.name} = {value}")
    return ["", *fitted("    ", "def __init__(", parameters, ", ", ") -> None:"), *body]


def runs(fields: list[Field]) -> list[list[Field]]:
    """Neighbouring bits together, as they share an octet; every other field alone."""
    grouped: list[list[Field]] = []
    for field in fields:
        if field.type == "bit" and grouped and grouped[-1][0].type == "bit":
            grouped[-1].append(field)
            assert len(grouped[-1]) <= 8, "bits of more than one octet"
        else:
            grouped.append([field])
    assert sum(run[0].type == "bit" for run in grouped) <= 1, "a second octet of bits needs a second name"
    return grouped


def encoded(field: Field, value: str) -> str:
    """The expression that gives a field's octets."""
    if field.type in WIDTHS:
        return f'{value}.to_bytes({WIDTHS[field.type]}, "big")'
    return f"encode_{field.type}({value})"


def encode_body(method: Method) -> list[str]:
    """The statements of `encode`. Constant octets that meet are one literal."""
    parts: list[str] = []
    lines: list[str] = []
    constant = method.index.to_bytes(4, "big")
    for run in runs(method.fields):
        if run[0].reserved and run[0].type != "bit":
            constant += bytes(RESERVED_OCTETS[run[0].type])
            continue
        bits = [
            f"self.{field.name} << {shift}" if shift else f"self.{field.name}"
            for shift, field in enumerate(run)
            if field.type == "bit" and not field.reserved
        ]
        if run[0].type == "bit" and not bits:
            constant += b"\0"
            continue
        parts += [octets(constant)] if constant else []
        constant = b""
        if run[0].type != "bit":
            parts.append(encoded(run[0], f"self.{run[0].name}"))
        elif len(bits) == 1:
            parts.append(f"bytes(({bits[0]},))")
        else:
            lines += fitted("        ", "bits = ", bits, " | ", "")
            parts.append("bytes((bits,))")
    parts += [octets(constant)] if constant else []
    return lines + fitted("        ", "return ", parts, " + ", "")


def method_class(method: Method) -> list[str]:
    lines = ["", "", "@final", f"class {method.class_name}(Method):", *method.docstring(), ""]
    lines += slots([field.name for field in method.arguments]) if method.arguments else ["    __slots__ = ()"]
    lines += ["", f"    INDEX: ClassVar[int] = 0x{method.index:08X}"]
    lines += [f'    NAME: ClassVar[str] = "{method.wire_name}"']
    if not method.fields:
        return lines
    lines += init(method)
    lines += ["", "    def encode(self) -> bytes:"]
    return lines + encode_body(method)


def at(offset: int) -> str:
    return f"pos + {offset}" if offset else "pos"


class Reader:
    """Writes the statements that read fields, and knows how far from `pos` they have come."""

    def __init__(self, buffer: str, end: str, indent: str) -> None:
        self.buffer = buffer
        self.end = end
        self.indent = indent
        self.offset = 0
        self.lines: list[str] = []

    def put(self, *statements: str) -> None:
        self.lines += [self.indent + statement for statement in statements]

    def advance(self) -> None:
        """Make `pos` the place of the next field."""
        if self.offset:
            self.put(f"pos += {self.offset}")
            self.offset = 0

    def number(self, width: int) -> str:
        """The expression that reads an unsigned number."""
        start, buffer = self.offset, self.buffer
        self.offset += width
        if width == 1:
            return f"{buffer}[{at(start)}]"
        if width == 2:
            return f"{buffer}[{at(start)}] << 8 | {buffer}[{at(start + 1)}]"
        return f'int.from_bytes({buffer}[{at(start)} : {at(self.offset)}], "big")'

    def read(self, field: Field, target: str) -> None:
        """Read one field that is not a bit into `target`; skip a reserved one."""
        buffer = self.buffer
        if field.type in WIDTHS:
            expression = self.number(WIDTHS[field.type])
            if not field.reserved:
                self.put(f"{target} = {expression}")
        elif field.type == "shortstr":
            length = f"{self.offset + 1} + {buffer}[{at(self.offset)}]"
            if field.reserved:
                self.put(f"pos += {length}")
            else:
                # Properties and routing keys may hold any octets, as in RabbitMQ, and leave as they came.
                how = '"utf-8", "surrogateescape"' if buffer == "raw" or field.any_octets else ""
                self.put(f"stop = pos + {length}")
                self.put(f"{target} = {buffer}[{at(self.offset + 1)} : stop].decode({how})", "pos = stop")
            self.offset = 0
        elif field.type == "longstr":
            self.advance()
            length = f'4 + int.from_bytes({buffer}[pos : pos + 4], "big")'
            if field.reserved:
                self.put(f"pos += {length}")
            else:
                self.put(f"stop = pos + {length}", f"{target} = {buffer}[pos + 4 : stop]", "pos = stop")
        else:
            assert field.type == "table"
            assert not field.reserved
            self.advance()
            self.put(f"{target}, pos = decode_table({buffer}, pos, {self.end})")


def method_decoder(method: Method) -> list[str]:
    reader = Reader("data", "len(data)", "    ")
    values: list[str] = []
    for run in runs(method.fields):
        if run[0].type != "bit":
            reader.read(run[0], run[0].name)
            values += [] if run[0].reserved else [run[0].name]
            continue
        octet = reader.number(1)
        named = [f"bool(bits & {1 << shift})" for shift, field in enumerate(run) if not field.reserved]
        if named:
            reader.put(f"bits = {octet}")
        values += named
    lines = ["", "", f"def {method.function_name}(data: bytes, pos: int) -> tuple[Method, int]:", *reader.lines]
    return lines + fitted("    ", f"return {method.class_name}(", values, ", ", f"), {at(reader.offset)}")


def methods_module(methods: list[Method]) -> str:
    lines = METHODS_HEAD.rstrip("\n").split("\n")
    for method in methods:
        lines += method_class(method)
    with_fields = [method for method in methods if method.fields]
    for method in with_fields:
        lines += method_decoder(method)
    lines += ["", "", "# Each reads the arguments from a position on, and says where they end."]
    lines += ["_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Method, int]]]] = {"]
    lines += [f"    {method.class_name}.INDEX: {method.function_name}," for method in with_fields]
    lines += ["}", "", "# Methods without arguments: one of each is enough.", "_BARE: Final[dict[int, Method]] = {"]
    lines += [f"    {method.class_name}.INDEX: {method.class_name}()," for method in methods if not method.fields]
    return "\n".join([*lines, "}"]) + "\n" + METHODS_TAIL


def properties_module(properties: list[Field]) -> str:
    names = [field.name for field in properties]
    flags = {field.name: 0x8000 >> position for position, field in enumerate(properties)}
    undefined = 0xFFFF & ~sum(flags.values())
    lines = PROPERTIES_HEAD.rstrip("\n").split("\n")
    lines += ["", "", "@final", "class Properties:"]
    lines += ['    """The basic properties; None for one that is absent. Equal when they are the same octets."""', ""]
    lines += slots(names)
    lines += ["", "    def __init__(", "        self,"]
    lines += [f"        {field.name}: {PYTHON_TYPES[field.type]} | None = None," for field in properties]
    lines += ["    ) -> None:"]
    lines += [f"        self.{name} = {name}" for name in names]
    lines += ["", "    def __eq__(self, other: object) -> bool:"]
    lines += ["        return isinstance(other, Properties) and encode_properties(self) == encode_properties(other)"]
    lines += ["", "", "def decode_properties(raw: bytes) -> Properties:"]
    lines += ['    """The properties in flags and property list; 502 when they are anything but that."""']
    lines += ["    try:", "        return _decode(raw)", "    except (IndexError, UnicodeDecodeError):"]
    lines += ['        raise malformed("the properties of a message") from None']
    lines += ["", "", "def _decode(raw: bytes) -> Properties:", "    properties = Properties()"]
    lines += ["    flags = raw[0] << 8 | raw[1]", "    pos = 2", f"    if flags & 0x{undefined:04X}:"]
    lines += ['        raise errors.syntax_error(f"property flags {flags:#06x} are not defined")']
    for field in properties:
        reader = Reader("raw", "len(raw)", "        ")
        reader.read(field, f"properties.{field.name}")
        reader.advance()
        lines += [f"    if flags & 0x{flags[field.name]:04X}:", *reader.lines]
    lines += ["    if pos != len(raw):", '        raise malformed("the properties of a message")']
    lines += ["    return properties", "", "", "def encode_properties(properties: Properties) -> bytes:"]
    lines += ['    """Flags and property list."""', "    flags = 0", '    parts = [b""]']
    for field in properties:
        lines += [f"    if properties.{field.name} is not None:"]
        lines += [f"        flags |= 0x{flags[field.name]:04X}"]
        lines += [f"        parts.append({encoded(field, f'properties.{field.name}')})"]
    lines += ['    parts[0] = flags.to_bytes(2, "big")', '    return b"".join(parts)']
    return "\n".join(lines) + "\n"


def reply_codes_module(codes: list[dict[str, Any]]) -> str:
    soft = [str(code["code"]) for code in codes if code["closes"] == "channel"]
    lines = [*REPLY_CODES_HEAD.rstrip("\n").split("\n"), "", "REPLY_NAMES: Final[dict[int, str]] = {"]
    lines += [f'    {code["code"]}: "{code["name"]}",' for code in codes]
    lines += ["}", "", "# Close the channel only; every other error closes the connection."]
    return "\n".join([*lines, f"SOFT_CODES: Final = frozenset(({', '.join(soft)}))"]) + "\n"


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    methods, properties, codes = load(SPEC)
    return {
        METHODS: methods_module(methods),
        PROPERTIES: properties_module(properties),
        REPLY_CODES: reply_codes_module(codes),
    }


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: codegen.py [--check]", file=sys.stderr)
        return 2
    stale = 0
    for path, text in generated().items():
        if not arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.relative_to(ROOT)} is not what the table says: run tools/codegen.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
