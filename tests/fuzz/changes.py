"""What folders.py does to the files of a folder: one change each, drawn with a random.Random."""
import gzip
import json
import os
import re
import socket
import zlib

NUMBERS = ["0", "-1", "1", "2", "63", "256", "65536", "65537", "1000000", "99999999", "2147483648",
           "4294967296", "9007199254740993", "9223372036854775807", "-9223372036854775808",
           "9223372036854775808", "18446744073709551615", "18446744073709551616", "1e9", "1e18",
           "1e308", "-1e309", "5e-324", "0.1", "-0.0"]
OTHERS = ["null", "true", '""', "[]", "{}", "[null]", '{"":0}', '"a"', '"-1"', '"/"', "nan"]
STEERING = ["\\u001b[2J", "\\n::error::x", "\\r", "\\u009b", "\\u202e", "\\u0000", "\x1b[31m",
            "\u009b", "\u202e", "\ufeff", "<img src=x>", "|", "../../x", "%s", "\\ud800"]
DEEP = 100_000
MANY = 100_000
LONG = 1 << 20
BOMB = None
VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')


def bomb():
    """200 MiB of brackets in 200 kB; made once."""
    global BOMB
    if BOMB is None:
        BOMB = gzip.compress(b"[" * (200 << 20), 6)
    return BOMB


def new_value(dice, old):
    """Bytes in place of a JSON value; `old` as it stood there."""
    kind = dice.random()
    if kind < 0.45:
        return dice.choice(NUMBERS).encode()
    if kind < 0.65:
        return dice.choice(OTHERS).encode()
    if kind < 0.85:
        return b'"' + dice.choice(STEERING).encode("utf-8", "surrogatepass") + old.strip(b'"') + b'"'
    if kind < 0.9:
        depth = dice.choice([99, 101, 5000, DEEP])
        begin, end = dice.choice([(b"[", b"]"), (b'{"a":', b"}")])
        return begin * depth + old + end * depth
    if kind < 0.94:
        return b'"' + b"x" * dice.choice([300, 5000, LONG]) + b'"'
    if kind < 0.97:
        return b"[" + b",".join([old] * dice.choice([10, 1000, MANY])) + b"]"
    return b"{" + b",".join(b'"k%d":%s' % (i, old) for i in range(dice.choice([10, MANY]))) + b"}"


def change_json(dice, data):
    found = list(VALUE.finditer(data))
    if not found:
        return change_bytes(dice, data)
    at = dice.choice(found)
    if dice.random() < 0.1:  # unknown keys, or the same ones again
        brace = data.find(b"{")
        many = dice.choice([1, 50, MANY]) if dice.random() < 0.3 else 1
        keys = b"".join(b'"%s%d": 1, ' % (dice.choice([b"k", b"name", b"\\u202e"]), i)
                        for i in range(many))
        return data[:brace + 1] + keys + data[brace + 1:]
    if dice.random() < 0.1:
        return data[:at.start()] + data[at.end():]
    new = dice.choice(found).group() if dice.random() < 0.15 else new_value(dice, at.group())
    if data[at.end():at.end() + 1] == b":" and not new.startswith(b'"'):
        new = b'"' + new[:1000] + b'"'  # a key stays a string, mostly
    return data[:at.start()] + new + data[at.end():]


def change_bytes(dice, data):
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        kind = dice.random()
        at = dice.randrange(len(data)) if data else 0
        if not data or kind < 0.05:
            data += bytes(dice.choice([1, 4096, LONG]))
        elif kind < 0.35:
            width = dice.choice([1, 2, 4, 8])
            value = dice.choice([0, 1, -1, len(data), 1 << 31, 1 << 40, 1 << 63, (1 << 63) - 1])
            data[at:at + width] = (value % (1 << 8 * width)).to_bytes(
                width, dice.choice(["little", "little", "big"]))
        elif kind < 0.65:
            data[at] = dice.randrange(256)
        elif kind < 0.75:
            del data[at:]
        elif kind < 0.85:
            del data[at:at + dice.choice([1, 8, 64])]
        else:
            data[at:at] = data[at:at + dice.choice([1, 32, 512])] * dice.choice([1, 2, 100])
    return bytes(data)


def change_packed(dice, data):
    try:
        text = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):  # damaged before
        return change_bytes(dice, data)
    if dice.random() < 0.3 or len(text) > 20 * LONG:
        return change_bytes(dice, data)
    return gzip.compress(change_json(dice, text), 1)


def is_json(data):
    return data.lstrip()[:1] in (b"{", b"[", b"/")


def change_content(dice, path):
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        new = change_packed(dice, data)
    elif is_json(data) and dice.random() < 0.9:
        new = change_json(dice, data)
    else:
        new = change_bytes(dice, data)
    path.write_bytes(new)


def a_fifo(dice, path):
    os.mkfifo(path)


def a_socket(dice, path):
    if len(str(path)) < 100:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


def a_link(dice, path):
    path.symlink_to(dice.choice(["/dev/zero", "/dev/null", "/dev/full", "/dev/tty", "/proc/self/mem",
                                 "/proc/kmsg", "/nowhere", path.name, "/", "/proc/self/environ"]))


def a_folder(dice, path):
    path.mkdir()
    (path / "plan.json").write_text("{}")


def a_sparse_file(dice, path, head=b""):
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(dice.choice([1 << 20, 300 << 20, 1 << 30, 6 << 30, 1 << 40]))


def a_deep_file(dice, path):
    path.write_bytes(dice.choice([b"[", b'{"a":']) * DEEP)


def a_bomb(dice, path):
    path.write_bytes(bomb())


def nothing(dice, path):
    pass


def an_empty_file(dice, path):
    path.write_bytes(b"")


def many_keys(dice, path):
    path.write_text("{" + ", ".join(f'"k{i}": {i}' for i in range(MANY)) + "}")


def noise(dice, path):
    path.write_bytes(dice.randbytes(dice.choice([1, 100, 100_000])))


SPECIAL = [a_fifo, a_socket, a_link, a_link, a_folder, a_sparse_file, a_deep_file, a_bomb, nothing,
           an_empty_file, many_keys, noise]


def change_file(dice, path):
    """One change; in one case of eight the file becomes something that is none, or none of its kind."""
    if dice.random() < 0.875 and path.is_file() and not path.is_symlink():
        if path.stat().st_size < 30 * LONG:
            change_content(dice, path)
            return
    made = dice.choice(SPECIAL)
    head = b""
    if made is a_sparse_file and path.is_file() and not path.is_symlink() and path.stat().st_size < LONG:
        head = path.read_bytes()
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    if head and dice.random() < 0.7:
        a_sparse_file(dice, path, head)
    else:
        made(dice, path)
    if dice.random() < 0.1 and path.is_file() and not path.is_symlink():
        path.chmod(0)


def loads_bounded(text):
    """Whether this is JSON; what is too deep for Python counts as none."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
