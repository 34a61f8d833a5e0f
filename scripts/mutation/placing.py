"""Where a C++ source can be mutated, and the source with all its mutants in it, each behind a number (mutant.h).

Reads the source by libclang (Debian: python3-clang; PyPI: libclang), so that a mutant is an expression, not a text."""
import collections
import glob
import hashlib
import pathlib
import sys

HEADER = pathlib.Path(__file__).with_name("mutant.h")
SWAPS = {"<": ("relation", "<="), "<=": ("relation", "<"), ">": ("relation", ">="), ">=": ("relation", ">"),
         "==": ("relation", "!="), "!=": ("relation", "=="), "&&": ("logic", "||"), "||": ("logic", "&&"),
         "+": ("arithmetic", "-"), "-": ("arithmetic", "+"), "*": ("arithmetic", "/"), "/": ("arithmetic", "*"),
         "%": ("arithmetic", "/"), "+=": ("arithmetic", "-="), "-=": ("arithmetic", "+="),
         "*=": ("arithmetic", "/="), "/=": ("arithmetic", "*=")}
EXTREMES = {"std::min": "std::max", "std::max": "std::min"}
# What these hold is known to the compiler, and no number of a run can change it.
FIXED = {"STATIC_ASSERT", "ENUM_CONSTANT_DECL", "ENUM_DECL", "TYPE_ALIAS_DECL", "TYPEDEF_DECL", "CONCEPT_DECL"}
BODIES = {"COMPOUND_STMT", "IF_STMT", "FOR_STMT", "WHILE_STMT", "CXX_FOR_RANGE_STMT", "CASE_STMT", "DEFAULT_STMT"}
ACTIONS = {"CALL_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR", "BINARY_OPERATOR", "UNARY_OPERATOR", "UNEXPOSED_EXPR"}
IMPURE = {"LAMBDA_EXPR", "CXX_NEW_EXPR", "CXX_DELETE_EXPR", "CXX_THROW_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR"}
PURE_CALLS = {"min", "max", "abs", "move", "get", "ssize"}

Mutant = collections.namedtuple("Mutant", "file line column kind before after")
# Where it is, what comes before and after the text that stands there now, and who it is.
Place = collections.namedtuple("Place", "start end before after mutant")


def name_of(mutant):
    return hashlib.sha256("\0".join(map(str, mutant)).encode()).hexdigest()[:12]


def arguments_of(command):
    """Of a compiler's command, what its reader needs too; not its precompiled header, which is another compiler's."""
    words, kept = iter(command), ["-w", "-ferror-limit=0"]
    for word in words:
        if word in ("-I", "-isystem", "-D"):
            kept += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=", "-isystem")):
            kept.append(word)
    return kept


def index():
    """A reader of sources: PyPI's, or Debian's, whose module any Python can use."""
    try:
        import clang.cindex
    except ImportError:
        sys.path.append("/usr/lib/python3/dist-packages")
        try:
            import clang.cindex
        except ImportError:
            raise SystemExit("mutate: needs libclang; install Debian's python3-clang, or libclang of PyPI") from None
    if not clang.cindex.Config.loaded and clang.cindex.__file__.startswith("/usr/lib"):
        libraries = sorted(glob.glob("/usr/lib/llvm-*/lib/libclang-*.so.1"))
        if libraries:
            clang.cindex.Config.set_library_file(libraries[-1])
    return clang.cindex.Index.create()


def may_turn(sign, types):
    """Whether values of these types have the other operator too: numbers, tensors, what a template leaves open; no two
    pointers have a sum."""
    words = [kind.kind.name for kind in types]
    if "RECORD" in words or "LVALUEREFERENCE" in words:
        return any("Tensor" in kind.spelling for kind in types)
    if "POINTER" in words:
        return sign in ("+", "-", "+=", "-=") and words.count("POINTER") == 1
    return True


class Source:
    """One source and the places in it."""

    def __init__(self, path, text, command, reader):
        self.path, self.text, self.places = path, text, []
        unit = reader.parse(str(path), args=arguments_of(command), unsaved_files=[(str(path), text)])
        # What this compiler does not take in a library's header (LibTorch 1.13 in C++20), it reads over.
        fatal = [str(said) for said in unit.diagnostics if said.severity == 4]
        if fatal:
            raise SystemExit(f"mutate: libclang cannot read {path}: {fatal[0]}")
        self.bytes = text.encode()
        for node in unit.cursor.get_children():
            if node.location.file and node.location.file.name == str(path):
                self._visit(node, None, 0)

    def _text(self, start, end):
        return self.bytes[start:end].decode()

    def _span(self, node):
        return node.extent.start.offset, node.extent.end.offset

    def _visit(self, node, parent, nth):
        kind = node.kind.name
        if kind in FIXED or (kind == "VAR_DECL" and "constexpr" in self._text(*self._span(node)).split("=")[0]):
            return
        if parent is not None and parent.kind.name in BODIES and kind in ACTIONS:
            self._statement(node, parent, nth)
        if kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            self._operator(node, list(node.get_children()))
        elif kind == "CALL_EXPR" and node.spelling.startswith("operator"):
            self._operator(node, list(node.get_arguments()))
        elif kind == "CALL_EXPR" and node.spelling in ("min", "max"):
            self._extreme(node)
        elif kind == "UNARY_OPERATOR":
            self._counter(node)
        elif kind in ("INTEGER_LITERAL", "CXX_BOOL_LITERAL_EXPR"):
            self._constant(node)
        children = list(node.get_children())
        if kind == "IF_STMT" and children[0].kind.is_expression():
            self._condition(node, children[0])
        for number, child in enumerate(children):
            if kind == "CASE_STMT" and number == 0:
                continue
            self._visit(child, node, number)

    def _add(self, node_span, kind, now, before, after):
        start, end = node_span
        text = self._text(start, end)
        line = self.bytes.count(b"\n", 0, start) + 1
        column = start - (self.bytes.rfind(b"\n", 0, start) + 1) + 1
        mutant = Mutant(self.path.name, line, column, kind, " ".join(text.split()), " ".join(now.split()))
        self.places.append(Place(start, end, before, after, mutant))

    def _is_copied(self, text):
        """Whether it may stand on one line, and once more: without comments and directives."""
        return "//" not in text and "\n#" not in text

    def _operator(self, node, sides):
        if len(sides) != 2:
            return
        (start, left_end), (right_start, end) = self._span(sides[0]), self._span(sides[1])
        sign = self._text(left_end, right_start).strip() if left_end <= right_start else ""
        if sign not in SWAPS or (start, end) != self._span(node):
            return
        left, right = (" ".join(self._text(*self._span(side)).split()) for side in sides)
        kind, other = SWAPS[sign]
        if kind == "arithmetic" and not may_turn(sign, [side.type.get_canonical() for side in sides]):
            return
        if not self._is_copied(self._text(start, end)):
            return
        now = f"({left}) {other} ({right})"
        ran = f"lockstep_mutant::quotient({left}, {right})" if other == "/" else f"({now})"
        if len(other) == 2 and other[1] == "=" and other[0] in "+-*/":
            self._add((start, end), kind, now, f"(lockstep_mutant::on(\0) ? ({left} {other} {right}) : (", "))")
        else:
            # What the other operator alone would evaluate may not be there.
            self._choice((start, end), kind, now, ran, kind != "logic" and self._is_pure(node))

    def _choice(self, span, kind, now, ran, is_pure):
        if is_pure:
            self._add(span, kind, now, f"(lockstep_mutant::at(\0) ? {ran} : lockstep_mutant::differs(\0, (",
                      f"), [&] {{ return {ran}; }}))")
        else:
            self._add(span, kind, now, f"(lockstep_mutant::on(\0) ? {ran} : (", "))")

    def _is_pure(self, node):
        """Reading it twice is as reading it once."""
        for inner in node.walk_preorder():
            kind = inner.kind.name
            if kind in IMPURE:
                return False
            text = self._text(*self._span(inner)) if kind == "UNARY_OPERATOR" else ""
            if text.startswith(("++", "--")) or text.endswith(("++", "--")):
                return False
            if kind == "BINARY_OPERATOR" and self._sign(inner) == "=":
                return False
            if kind == "CALL_EXPR" and not self._is_pure_call(inner):
                return False
        return True

    def _sign(self, node):
        sides = list(node.get_children())
        return self._text(self._span(sides[0])[1], self._span(sides[1])[0]).strip() if len(sides) == 2 else ""

    def _is_pure_call(self, node):
        callee = node.referenced
        if callee is None:
            return False
        if callee.kind.name in ("CXX_METHOD", "CONVERSION_FUNCTION"):
            return callee.is_const_method() or node.spelling in ("operator[]", "begin", "end", "operator->", "operator*")
        return callee.kind.name == "CONSTRUCTOR" or node.spelling in PURE_CALLS or node.spelling.startswith("operator")

    def _extreme(self, node):
        start, end = self._span(node)
        text = self._text(start, end)
        if text[:8] in EXTREMES and self._is_copied(text):
            now = EXTREMES[text[:8]] + " ".join(text[8:].split())
            self._choice((start, end), "call", now, now, self._is_pure(node))

    def _counter(self, node):
        start, end = self._span(node)
        text = self._text(start, end)
        for sign, other in (("++", "--"), ("--", "++")):
            if text.startswith(sign):
                now = other + text[2:]
            elif text.endswith(sign):
                now = text[:-2] + other
            else:
                continue
            self._add((start, end), "arithmetic", now, f"(lockstep_mutant::on(\0) ? ({now}) : (", "))")

    def _constant(self, node):
        start, end = self._span(node)
        text = self._text(start, end)
        if text in ("true", "false"):
            now = "false" if text == "true" else "true"
            self._add((start, end), "constant", now, "(lockstep_mutant::on(\0) != ", ")")
        elif text[:1].isdigit():
            now = f"({text} - 1)" if text.rstrip("uUlL") == "1" else f"({text} + 1)"
            self._add((start, end), "constant", now, f"(lockstep_mutant::on(\0) ? {now} : ", ")")

    def _statement(self, node, parent, nth):
        """One that stands for what it does: a body, not a condition, a start or what is counted."""
        sort = parent.kind.name
        if sort in ("IF_STMT", "WHILE_STMT", "CASE_STMT") and nth == 0:
            return
        if sort in ("FOR_STMT", "CXX_FOR_RANGE_STMT") and nth != len(list(parent.get_children())) - 1:
            return
        start, end = self._span(node)
        if self.bytes[end:end + 1] == b";":
            self._add((start, end), "statement", ";", "(lockstep_mutant::on(\0) ? void() : void(", "))")

    def _condition(self, node, condition):
        span, start = self._span(condition), node.extent.start.offset
        # One of a macro's own stands where the macro's name does.
        if span[0] > start and "constexpr" not in self._text(start, span[0]):
            text = self._text(*span)
            self._add(span, "condition", f"!({text})", "(lockstep_mutant::on(\0) != static_cast<bool>(", "))")


def placed(text, places, number_of):
    """The text with these places in it; what one holds may hold others, none overlaps another."""
    data, out = text.encode(), []
    marks = collections.defaultdict(lambda: ([], []))  # offset: what ends there, what starts there
    ordered = sorted(places, key=lambda place: (place.start, -place.end))
    for place in ordered:
        number = str(number_of[name_of(place.mutant)])
        marks[place.start][1].append(place.before.replace("\0", number))
        marks[place.end][0].insert(0, place.after.replace("\0", number))
    last = 0
    for offset in sorted(marks):
        out.append(data[last:offset].decode())
        ends, starts = marks[offset]
        out += [*ends, *starts]
        last = offset
    return "".join([*out, data[last:].decode()])
